#include "run/cpu_executor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "attention/pattern_layers.h"
#include "kv/kv_formats.h"
#include "kv/tiers/memory_tier.h"
#include "models/background_packer.h"
#include "run/compatibility/collect.h"
#include "run/context_refresh.h"
#include "run/kv_identity.h"
#include "run/kv_places.h"
#include "run/language_model.h"
#include "run/memory_plan.h"
#include "run/prompt_embeddings.h"
#include "run/skip_choice.h"
#include "run/stored_pattern.h"
#include "run/window_blocks.h"
#include "sampling/logprobs.h"
#include "sampling/schema.h"
#include "sampling/setup.h"
#include "speculate/drafter.h"

namespace millrace {
namespace {

constexpr int64_t kDefaultKvTokens = 65536;

// Rows of logits for drafted tokens. Where the lengths of drafts are chosen, long drafts in many streams do not pay.
int64_t draft_rows(const EngineOptions& options, int64_t longest) {
  constexpr int64_t kChosenRows = 64;
  const int64_t most = options.max_streams * longest;
  return options.draft_length == "auto" ? std::min(most, std::max(longest, kChosenRows)) : most;
}

ForwardLimits step_limits(const EngineOptions& options, int64_t drafts, int64_t context) {
  const int64_t tokens = std::max(options.batch_tokens, options.max_streams);
  return {.tokens = tokens,
          .outputs = std::min(tokens, options.max_streams + draft_rows(options, drafts)),
          .context = context};
}

// Without memory for constraints where it does not fit otherwise, if only a default asks for it.
Result<int64_t> plan_blocks(const KvLayout& layout, const KvPoolOptions& places, EngineMemory& memory,
                            const MemoryAccounts& accounts, int64_t wanted, int64_t least, bool default_constraints) {
  auto planned = plan_kv_blocks(layout, places, memory, accounts, wanted, least);
  if (planned.ok() || !default_constraints || memory.constraints == 0) return planned;
  memory.constraints = 0;
  auto again = plan_kv_blocks(layout, places, memory, accounts, wanted, least);
  return again.ok() ? std::move(again) : std::move(planned);
}

}  // namespace

Result<std::unique_ptr<Executor>> CpuExecutor::create(std::shared_ptr<const LanguageModel> model,
                                                      const EngineOptions& given) {
  EngineOptions options = given;
  options.kernels = with_stored_patterns(*model->parts().files, std::move(options.kernels));
  auto executor = std::unique_ptr<CpuExecutor>(new CpuExecutor());
  executor->model_ = std::move(model);
  executor->adapters_ = std::make_unique<AdapterRegistry>(executor->model_);
  for (const std::string& named : options.adapters) {  // before the KV cache takes the rest of the memory budget
    const auto [name, path] = named_adapter(named);
    MILLRACE_TRY_VOID(executor->adapters_->load(name, path));
  }
  MILLRACE_TRY_VOID(executor->size_memory(options, executor->model_->parts().threads->get(options.threads)));
  return std::unique_ptr<Executor>(std::move(executor));
}

Result<void> CpuExecutor::size_memory(const EngineOptions& options, std::shared_ptr<ThreadPool> threads) {
  const Model& model = *model_->parts().model;
  limits_.context = options.context > 0 ? options.context : model.context();
  if (limits_.context > model.context()) {
    return Error::user(
        fmt::format("context: the model was loaded for {} tokens, {} asked for", model.context(), limits_.context));
  }
  MILLRACE_TRY(const KvFormats formats, find_kv_formats(options.kv_format, model_->parts().kernels));
  if (!formats.keys) {
    std::string known;
    for (const auto& kernel : model_->parts().kernels.attention)
      known += fmt::format("{}{}", known.empty() ? "" : ", ", kernel.kv_format->name);
    known += ", " + kv_codecs().names();
    return Error::unsupported(fmt::format("KV format '{}'; supported: {}", options.kv_format, known));
  }
  MILLRACE_TRY_VOID(state_facts(options, formats));
  MILLRACE_TRY(const int64_t drafts, longest_draft(options.drafter));
  MILLRACE_TRY(const auto skips, drafter_skips(options.drafter));
  std::optional<SkippedBlocks> skipped;
  if (skips) {
    MILLRACE_TRY(skipped, choose_skips(*skips, *model_));
  }
  const Tokenizer* tokens = model_->parts().tokenizer.get();
  MILLRACE_TRY_VOID(
      check_drafter(options.drafter, model.spec().vocab,
                    tokens ? std::span<const std::string>(tokens->spec().tokens) : std::span<const std::string>()));
  MILLRACE_TRY(KvLayout layout, engine_layout(formats, options, model.kv_layers(), limits_.context));
  const auto own_layers = std::ssize(layout.layers);
  MILLRACE_TRY(const auto draft, load_draft_model(options, threads->threads(), layout));
  if (draft) add_draft_windows(draft->parts().model->spec(), limits_.context, options.drafter, facts_);
  MILLRACE_TRY_VOID(load_features(options, *threads, layout));
  MILLRACE_TRY_VOID(resolve_engine(options, facts_));
  MILLRACE_TRY_VOID(layout.check());
  MILLRACE_TRY(const KvPoolMode mode, find_kv_pool_mode(options.kv_pool));
  if (mode == KvPoolMode::virtual_ranges) MILLRACE_TRY_VOID(layout.use_whole_pages(sysconf(_SC_PAGESIZE)));
  KvPoolOptions places{mode, limits_.context, std::max(options.max_streams, options.resident_streams)};
  MILLRACE_TRY(const auto rule, make_eviction_rule(options.evictor));
  places.evicts = rule != nullptr;
  if (has_tier(options)) {
    MILLRACE_TRY(const auto tier, chosen_tier(options));
    MILLRACE_TRY(const int64_t bytes, tier.member.memory(layout, tier.options));
    places.swapped = places.streams;
    places.swapped_blocks = bytes / std::max<int64_t>(1, layout.block_bytes()) + places.streams;
  }
  const bool recurrent = layout.recurrent();
  if (layout.state_bytes() > 0) {
    // Of running streams, of swapped ones, and snapshots before drafted tokens.
    places.states = places.streams * (has_tier(options) ? 2 : 1) +
                    (options.drafter.empty() || !recurrent ? 0 : options.max_streams);
  }

  ForwardLimits forward = step_limits(options, drafts, limits_.context);
  MILLRACE_TRY(forward.switches, make_forward_switches(options.kernels));
  if (forward.switches.expert_capacity > 0)
    return Error::user(
        "kernel padded_experts: answers would depend on the other requests of a batch; only bench and perplexity take "
        "it");
  MILLRACE_TRY_VOID(load_documents(options, threads, forward, formats.encodes()));
  const std::shared_ptr<MemoryAccounts>& accounts = model_->parts().accounts;
  const bool budget = accounts->budget() > 0;
  int64_t kv_tokens = options.kv_tokens;
  const int64_t demand = longest_demand(rule.get(), layout, limits_.context);
  if (kv_tokens == 0 && layout.block_bytes() == 0)
    kv_tokens = places.streams * limits_.context;  // blocks without bytes
  if (kv_tokens == 0 && !budget) kv_tokens = std::max(demand, std::min(options.max_streams * demand, kDefaultKvTokens));
  const int64_t least = options.kv_tokens > 0 ? kv_tokens : demand;  // only a default may be reduced
  const Tokenizer* tokenizer = model_->parts().tokenizer.get();
  MILLRACE_TRY(EngineMemory memory, plan_engine_memory(model.spec(), options, forward, threads->threads(), layout,
                                                       tokenizer, accounts->budget()));
  memory.states = places.states * layout.state_bytes();
  DraftRunner::Sizes draft_sizes{forward.tokens, forward.context, options.max_streams};
  MILLRACE_TRY(draft_sizes.rows, drafter_model_rows(options.drafter));
  MILLRACE_TRY(const bool odds, acceptance_needs_odds(options.acceptance));
  draft_sizes.longest = drafts;
  if (odds) draft_sizes.odds = forward.outputs;
  if (draft) memory.drafter += DraftRunner::memory(*draft, draft_sizes, threads->threads(), layout);
  const FeatureRunner::Sizes feature_sizes{.tokens = forward.tokens,
                                           .context = forward.context,
                                           .streams = options.max_streams,
                                           .rows = draft_sizes.rows,
                                           .longest = drafts,
                                           .vocab = model.spec().vocab};
  if (features_) memory.drafter += features_->memory(feature_sizes, threads->threads(), layout);
  if (skipped) memory.drafter += SelfRunner::memory(model.spec().vocab, options.max_streams, threads->threads());
  MILLRACE_TRY(const int64_t blocks,
               plan_blocks(layout, places, memory, *accounts, kv_tokens, least, options.constraint_memory == 0));
  MILLRACE_TRY(memory_, take_engine_memory(memory, layout, places, blocks, accounts));
  if (budget) limits_.request_bytes = memory.requests;
  if (tokenizer)
    grammars_ = std::make_unique<ConstraintMemory>(*tokenizer, accounts, memory.constraints, options.max_streams);
  MILLRACE_TRY(runner_, ModelRunner::create(model, model_->parts().kernels,
                                            {.threads = threads,
                                             .layout = std::move(layout),
                                             .blocks = blocks,
                                             .places = places,
                                             .limits = forward,
                                             .streams = options.max_streams}));
  if (draft) {
    MILLRACE_TRY(draft_, DraftRunner::create(draft, runner_->kv(), own_layers, std::move(threads), draft_sizes));
  }
  if (features_) MILLRACE_TRY_VOID(features_->start(*runner_, own_layers, feature_sizes));
  if (skipped) self_ = std::make_unique<SelfRunner>(*runner_, *std::move(skipped), options.max_streams);
  if (documents_) runner_->hooks().add(*documents_);
  evictions_.emplace(*runner_, drafts);
  draft_positions_.reserve(static_cast<size_t>(kMaxTreeTokens));
  sampled_.reserve(static_cast<size_t>(forward.outputs));
  read_rows_.reserve(static_cast<size_t>(forward.tokens));
  reads_.reserve(static_cast<size_t>(forward.tokens));
  adapted_.reserve(static_cast<size_t>(options.max_streams));
  choice_.emplace(tokenizer, model.spec().vocab, runner_->threads(), forward.outputs);
  limits_.tokens = forward.tokens;
  limits_.outputs = forward.outputs;
  limits_.drafts = drafts;
  limits_.vocab = model.spec().vocab;
  limits_.gate_dims = model.spec().gates.dims;
  limits_.prompts_apart = has_phase(runner_->limits().switches.attention.pattern);
  limits_.scratch_bytes = runner_->context().bytes() + (draft_ ? draft_->scratch_bytes() : 0);
  return {};
}

Result<void> CpuExecutor::state_facts(const EngineOptions& options, const KvFormats& formats) {
  const Model& model = *model_->parts().model;
  const std::vector<KvLayer> layers = model.kv_layers();
  limits_.layers = model.spec().layer_count();
  limits_.kv_heads = layers.empty() ? 0 : layers.front().kv_heads;
  add_model(model.spec(), limits_.context, facts_);
  facts_.add_if(!model_->parts().tokenizer, facts::kNoTokenizer, "this model");
  MILLRACE_TRY_VOID(add_engine({options, formats, layers, limits_.context}, facts_));
  return resolve_engine(options, facts_);
}

// Adds the layers of the drafter's model to those of this one. Null: it has none.
Result<std::shared_ptr<const LanguageModel>> CpuExecutor::load_draft_model(const EngineOptions& options, int threads,
                                                                           KvLayout& layout) const {
  std::shared_ptr<const LanguageModel> draft;
  MILLRACE_TRY(const auto path, drafter_model(options.drafter));
  MILLRACE_TRY(const auto features, drafter_features(options.drafter));
  if (!path || features) return draft;
  MILLRACE_TRY(draft, DraftRunner::load(*model_, *path, threads, limits_.context));
  const auto layers = draft->parts().model->kv_layers();
  layout.layers.insert(layout.layers.end(), layers.begin(), layers.end());
  return draft;
}

// The same of a drafter that reads this model's hidden states.
Result<void> CpuExecutor::load_features(const EngineOptions& options, ThreadPool& threads, KvLayout& layout) {
  MILLRACE_TRY(const auto path, drafter_model(options.drafter));
  MILLRACE_TRY(const auto choice, drafter_features(options.drafter));
  if (!choice) return {};
  MILLRACE_TRY(features_, FeatureRunner::load(*choice, *path, *model_, threads, limits_.context));
  const auto layers = features_->layers();
  layout.layers.insert(layout.layers.end(), layers.begin(), layers.end());
  return {};
}

// What the context needs beside the model.
Result<void> CpuExecutor::load_documents(const EngineOptions& options, std::shared_ptr<ThreadPool> threads,
                                         const ForwardLimits& limits, bool encodes) {
  MILLRACE_TRY(const auto context, make_document_context(options.document_context));
  if (context && context->link_rows()) {
    MILLRACE_TRY(links_,
                 LinkRows::load(*context->link_rows(), model_->parts().model->spec().width, model_->parts().accounts));
  }
  if (context && context->encoder()) {
    MILLRACE_TRY(documents_,
                 EncodedDocuments::load(*context->encoder(), *model_, std::move(threads), options, limits.tokens));
  } else if (context && encodes && pattern_layer_sets(limits.switches.attention.pattern) == 0 &&
             check_movable(model_->parts().model->spec(), "context").ok()) {
    const int64_t tokens = options.document_tokens > 0 ? options.document_tokens : limits.context;
    MILLRACE_TRY(rows_, DocumentRows::create(*model_, std::move(threads), limits, tokens, options.prefix_cache));
  }
  return {};
}

const MemoryAccounts* CpuExecutor::accounts() const { return model_->parts().accounts.get(); }

Result<std::unique_ptr<KvTier>> CpuExecutor::make_tier(int64_t tokens) { return make_memory_tier(kv(), tokens); }

Result<std::unique_ptr<KvTier>> CpuExecutor::make_swap(const EngineOptions& options) {
  MILLRACE_TRY(const auto tier, chosen_tier(options));
  return tier.member.make(kv(), tier.options);
}

Result<std::unique_ptr<PrefixStore>> CpuExecutor::make_store(const EngineOptions& options) {
  MILLRACE_TRY(std::string identity, kv_identity());
  MILLRACE_TRY(const auto store, chosen_store(options));
  return store.member.make(kv(), std::move(identity), store.options);
}

// The probe's pass is no step: hooks must not see it.
Result<std::string> CpuExecutor::kv_identity() {
  runner_->start();
  const ForwardHooks hooks = std::exchange(runner_->hooks(), ForwardHooks());
  auto identity = millrace::kv_identity(*model_, *runner_);
  runner_->hooks() = hooks;
  if (features_ && identity.ok()) return *identity + features_->identity();
  if (!draft_) return identity;
  MILLRACE_TRY(std::string own, std::move(identity));
  MILLRACE_TRY(const std::string second, millrace::kv_identity(draft_->model(), draft_->runner()));
  return own + "draft " + second;
}

bool CpuExecutor::before_attention(std::function<void(int64_t)> ready) {
  runner_->hooks().remove(keys_ready_);
  keys_ready_.wait = std::move(ready);
  if (keys_ready_.wait) runner_->hooks().add(keys_ready_);
  return true;
}

void CpuExecutor::observe_attention() {
  if (!std::exchange(observes_, true)) runner_->hooks().add(mass_);
}

Result<void> CpuExecutor::failure() const {
  const BackgroundPacker* packing = model_->parts().model->packing();
  return packing ? packing->failure() : Result<void>();
}

Result<void> CpuExecutor::check(const Request& request) const {
  MILLRACE_TRY_VOID(failure());
  const int64_t vocab = model_->parts().model->spec().vocab;
  for (TokenId token : request.prompt)
    if (token < 0 || token >= vocab)
      return Error::user(fmt::format("prompt: token {} is outside the vocabulary of {}", token, vocab));
  MILLRACE_TRY_VOID(check_embeddings(request, model_->parts().model->spec().width));
  MILLRACE_TRY_VOID(validate(request.sampling, vocab));
  if (auto stop = AnswerStops::create(request); !stop.ok()) return stop.error();
  if (!request.adapters.empty()) MILLRACE_TRY_VOID(adapters_->find(request.adapters));
  return {};
}

Result<CompiledConstraint> CpuExecutor::compile(const Constraint& constraint, const CompileOrder& order) const {
  if (constraint.kind == Constraint::Kind::none) return CompiledConstraint();
  if (!grammars_)
    return Error::unsupported("constraint: the model has no tokenizer, so there is no text to hold to it");
  MILLRACE_TRY(const CompiledGrammar compiled, grammars_->get(constraint, order));
  return CompiledConstraint{compiled.grammar->notes.weakened, compiled.grammar};
}

std::optional<Result<CompiledConstraint>> CpuExecutor::compiled(const Constraint& constraint) const {
  if (constraint.kind == Constraint::Kind::none) return CompiledConstraint();
  auto found = grammars_ ? grammars_->find(constraint) : std::nullopt;
  if (!found) return std::nullopt;
  if (!found->ok()) return Result<CompiledConstraint>(found->error());
  return Result<CompiledConstraint>(CompiledConstraint{(*found)->grammar->notes.weakened, (*found)->grammar});
}

Result<void> CpuExecutor::check_encoded(const DocumentTokens& documents) const {
  if (!documents_)
    return Error::user(
        "context cepe: the engine has no encoder; start it with one, context=cepe:model=FOLDER, or choose another "
        "context");
  return documents_->check(documents);
}

Result<void> CpuExecutor::put_links(const LinkRowsChoice& choice, Request& request) const {
  if (!links_)
    return Error::user(
        "context kvlink: link_embeddings: is an option of the engine; start it with "
        "context=kvlink:links=N,link_embeddings=FILE");
  return links_->put(choice, request);
}

bool CpuExecutor::hold_documents(LiveStream& stream, int64_t& budget) {
  return !stream.encoded || documents_->hold(*stream.encoded, stream.lease, budget);
}

void CpuExecutor::compact_encoded(const LiveStream& stream) {
  const Sequence& s = stream.sequence;
  runner_->compact_encoded(
      {s.kv.blocks, s.kv.state, s.stored(), stream.eviction->tokens().kept(), stream.eviction->heads()});
}

void CpuExecutor::move_keys(std::span<const BlockId> blocks, int64_t slot, int64_t count, int64_t positions) {
  runner_->move_keys(blocks, slot, count, positions);
}

void CpuExecutor::keys_changed(std::span<const BlockId> blocks, int64_t begin, int64_t end) {
  runner_->renew_summaries(blocks, begin, end);
}

void CpuExecutor::refresh(const LiveStream& stream) {
  mass_.mass.spans.clear();
  evictions_->start();
  runner_->hooks().remove(keys_ready_);  // loads are of the step
  refresh_parts(stream, *runner_);
  if (keys_ready_.wait) runner_->hooks().add(keys_ready_);
}

Result<void> CpuExecutor::begin(LiveStream& stream) const {
  const Request& request = stream.sequence.request;
  const Tokenizer* tokenizer = model_->parts().tokenizer.get();
  SamplerSetup setup;
  if (tokenizer) {
    setup = make_sampler_setup(request, *tokenizer);
    const DetokenizerOptions shown{
        .skip_special = request.skip_special,
        .markers = request.show_markers || request.constraint.kind != Constraint::Kind::none};
    stream.detokenizer = std::make_unique<Detokenizer>(*tokenizer, shown);
  } else {
    setup.options = request.sampling;
  }
  setup.vocab_size = static_cast<int32_t>(model_->parts().model->spec().vocab);
  if (request.constraint.kind != Constraint::Kind::none) {
    MILLRACE_TRY(setup.grammar, grammars_->get(request.constraint));
  }
  MILLRACE_TRY(stream.sampler, SamplerChain::create(setup));
  for (TokenId token : request.prompt) stream.sampler->accept(token);
  MILLRACE_TRY(stream.stop, AnswerStops::create(request));
  return request.adapters.empty() ? Result<void>() : begin_adapters(stream);
}

Result<void> CpuExecutor::begin_adapters(LiveStream& stream) const {
  MILLRACE_TRY(stream.adapters, adapters_->find(stream.sequence.request.adapters));
  const ArchSpec& spec = model_->parts().model->spec();
  for (ModelRunner* runner : {runner_.get(), rows_ ? &rows_->runner() : nullptr}) {
    for (const LoraUse& use : stream.adapters) {
      const int64_t bytes = runner ? runner->adapters().wanted(spec, use.adapter->rank()) : 0;
      if (bytes == 0) continue;
      MILLRACE_TRY(MemoryHold hold, MemoryHold::take(model_->parts().accounts, "adapters", bytes,
                                                     "unload an adapter, or raise the budget"));
      MILLRACE_TRY_VOID(runner->adapters().reserve(spec, use.adapter->rank()));
      memory_.push_back(std::move(hold));
    }
  }
  return {};
}

void CpuExecutor::forward(std::span<const StepWork> work) {
  choice_->forget();
  runner_->start();
  evictions_->start();
  reads_.clear();
  sampled_.clear();
  if (documents_) documents_->begin_pass();
  const bool keeps = features_ && features_->keeps();
  size_t needed = 0;  // of `sampled_`: a prompt that is only read is not sampled from
  for (const StepWork& item : work) {
    const PlannedChunk& chunk = item.chunk;
    const Sequence& s = item.stream->sequence;
    const LoraMix& mix = item.stream->adapters;
    const int64_t first_row = runner_->tokens();
    runner_->begin(s.kv.blocks, chunk.first - s.kv.left_out, mix.empty() ? nullptr : &mix, s.kv.state);
    if (chunk.first >= s.prompt_tokens) runner_->answers();
    for (size_t g = 0; g < s.kv.windows.size(); ++g)
      runner_->begin_group(static_cast<int64_t>(g) + 1, s.kv.windows[g].blocks,
                           chunk.first - s.kv.left_out_of(static_cast<int64_t>(g) + 1));
    const bool tree = !s.draft.is_chain(chunk.drafted);
    const int64_t end = chunk.first + (tree ? chunk.own() : chunk.count);
    const int64_t sampled = keeps ? chunk.first : chunk.first + chunk.count - chunk.outputs();
    const ContextPart* part = part_of(item.stream->context, chunk.first);
    const TokenEviction* const eviction = item.stream->eviction.get();
    const bool behind = item.stream->context.behind(chunk.first);
    int64_t moved = part ? part->moved : behind ? item.stream->context.moved : 0;
    if (eviction) moved += chunk.first - eviction->position(chunk.first);
    if (s.request.reader || !s.request.embeddings.empty())
      add_rows(*item.stream, chunk.first, end, moved, sampled);
    else
      for (int64_t i = chunk.first; i < end; ++i) runner_->add(s.token_at(i), i - moved, i >= sampled);
    if (tree)
      add_tree(*item.stream, chunk.drafted, moved);
    else if (part)
      runner_->see({.segments = part->sees});
    else if (behind && !item.stream->sees.empty())
      runner_->see({.segments = item.stream->sees,
                    .segment_heads = item.stream->sees_lists,
                    .documents = item.stream->context.documents});
    if (item.stream->lease) documents_->add(*item.stream->lease, first_row, runner_->tokens() - first_row);
    if (eviction) evictions_->add(*item.stream->eviction, chunk.drafted);
    for (int64_t row = runner_->outputs() - chunk.outputs(); row < runner_->outputs(); ++row)
      sampled_.push_back(static_cast<int32_t>(row));
    if (chunk.outputs() > 0 && s.size() < s.max_total) needed = sampled_.size();
  }
  sampled_.resize(needed);
  if (observes_) request_mass(work);
  if (reads_.empty() && !keeps)
    runner_->forward();
  else
    forward_in_parts();
  if (documents_) documents_->end_pass();
  if (keeps) features_->keep();
  if (observes_) take_mass(work);
}

// Tokens [begin, end), some of which may be given as rows, or be read; their positions are lower by `moved`.
void CpuExecutor::add_rows(LiveStream& stream, int64_t begin, int64_t end, int64_t moved, int64_t sampled) {
  const int64_t width = model_->parts().model->spec().width;
  const Sequence& s = stream.sequence;
  for (int64_t i = begin; i < end; ++i) {
    const bool read = s.request.reader && i < s.prompt_tokens && s.request.reader->wants(i);
    if (read) reads_.push_back({&stream, i, static_cast<int32_t>(runner_->outputs())});
    const std::span<const float> row = embedding_at(s.request, i, width);
    if (row.empty())
      runner_->add(s.token_at(i), i - moved, read || i >= sampled);
    else
      runner_->add_embedding(row, i - moved, read || i >= sampled);
  }
}

// No exception may leave a worker.
void CpuExecutor::ReadRow::read(const float* values) {
  try {
    reader().read(position, values);
  } catch (...) {
    failed = true;
  }
}

// With readers, or a drafter that reads hidden states. The final states of all rows first; logits of rows that are read
// some at a time, as many as fit where the layers worked; then those of the rows that are sampled, where the plan has
// them.
void CpuExecutor::forward_in_parts() {
  const ThreadPool::Turn turn(runner_->threads());
  runner_->forward_hidden(turn);
  adapted_ = runner_->adapters().runs;  // of all rows: adapters of the head need those of the piece
  const auto keep_adapters = [&](std::span<const int32_t> rows) {
    runner_->adapters().runs = adapted_;
    runner_->adapters().keep(rows);
  };
  const auto take_failures = [&] {
    for (const ReadRow& one : reads_) one.stream->read_failed |= one.failed;
  };
  for (ReadRow& one : reads_)
    if (!one.reader().logits()) one.read(runner_->hidden(one.row));
  take_failures();
  std::erase_if(reads_, [](const ReadRow& one) { return !one.reader().logits(); });
  for (size_t first = 0; first < reads_.size(); first += read_rows_.size()) {
    const size_t count = std::min(reads_.size() - first, static_cast<size_t>(runner_->most_read_rows()));
    read_rows_.clear();
    for (size_t i = first; i < first + count; ++i) read_rows_.push_back(reads_[i].row);
    keep_adapters(read_rows_);
    const float* logits = runner_->read_rows(read_rows_, turn);
    runner_->threads().parallel_for(static_cast<int64_t>(count), [&](int64_t i, int) {
      reads_[first + static_cast<size_t>(i)].read(logits + i * model_->parts().model->spec().vocab);
    });
  }
  take_failures();
  keep_adapters(sampled_);
  runner_->head_rows(sampled_, turn);
}

// Drafted tokens at the positions that they have in their paths, each of which sees its own path only.
void CpuExecutor::add_tree(const LiveStream& stream, int64_t count, int64_t moved) {
  const Sequence& s = stream.sequence;
  draft_positions_.clear();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t parent = s.draft.parent(i);
    draft_positions_.push_back(parent < 0 ? s.size() - moved : draft_positions_[static_cast<size_t>(parent)] + 1);
    runner_->add(s.draft.tokens[static_cast<size_t>(i)], draft_positions_.back(), true);
  }
  runner_->see({.parents = std::span(s.draft.parents).first(static_cast<size_t>(count)),
                .segments = stream.sees,
                .segment_heads = stream.sees_lists,
                .documents = stream.context.documents});
}

// Requests the attention mass of the last query of every prompt chunk, in the middle layer, or in the next layer
// without a window.
void CpuExecutor::request_mass(std::span<const StepWork> work) {
  AttentionMass& mass = mass_.mass;
  const auto& layers = model_->parts().model->spec().layers;
  mass.layer = static_cast<int64_t>(layers.size()) / 2;
  for (size_t i = static_cast<size_t>(mass.layer); i < layers.size(); ++i) {
    if (layers[i].window > 0) continue;
    mass.layer = static_cast<int64_t>(i);
    break;
  }
  mass.spans.clear();
  for (size_t i = 0; i < work.size(); ++i)
    if (work[i].chunk.first < work[i].stream->sequence.prompt_tokens && work[i].stream->sequence.prefix.caches)
      mass.spans.push_back(static_cast<int64_t>(i));
}

// In even shares, so that blocks of long and short prompts are comparable.
void CpuExecutor::take_mass(std::span<const StepWork> work) {
  const AttentionMass& mass = mass_.mass;
  const int64_t block_tokens = kv().layout().block_tokens;
  const float* next = mass.mass.data();
  for (int64_t index : mass.spans) {
    const StepWork& item = work[static_cast<size_t>(index)];
    const int64_t tokens = item.chunk.first + item.chunk.count;
    auto& importance = item.stream->importance;
    const auto blocks = static_cast<size_t>(kv().blocks_for(tokens));
    importance.resize(std::max(importance.size(), blocks));
    for (size_t b = 0; b < blocks; ++b) {
      const int64_t held = std::min(block_tokens, tokens - static_cast<int64_t>(b) * block_tokens);
      importance[b] = std::max(importance[b], *next++ * static_cast<float>(tokens) / static_cast<float>(held));
    }
  }
}

void CpuExecutor::choose_ahead(std::span<const StepWork> work, const Acceptance& acceptance) {
  choice_->choose_ahead(work, acceptance, runner_->logits());
}

Result<bool> CpuExecutor::choose(LiveStream& stream, int64_t row, TokenEvent& event) {
  return choice_->choose(stream, row, runner_->logits(), event);
}

void CpuExecutor::likeliest(int64_t row, int64_t count, std::vector<TokenLogprob>& out) {
  const auto vocab = static_cast<size_t>(model_->parts().model->spec().vocab);
  out = compute_logprobs({runner_->logits(row), vocab}, -1, count).top;
}

TokenId CpuExecutor::best_token(int64_t row) {
  return std::max<TokenId>(0, argmax({runner_->logits(row), static_cast<size_t>(model_->parts().model->spec().vocab)}));
}

void CpuExecutor::best_tokens(int64_t row, std::span<TokenId> out) {
  largest_tokens({runner_->logits(row), static_cast<size_t>(limits_.vocab)}, out);
}

std::vector<TokenId> CpuExecutor::end_tokens() const {
  const Tokenizer* tokenizer = model_->parts().tokenizer.get();
  return tokenizer ? tokenizer->spec().eog : std::vector<TokenId>();
}

void CpuExecutor::write(LiveStream& stream, TokenEvent& event) {
  const Tokenizer* tokenizer = model_->parts().tokenizer.get();
  const bool silent = tokenizer && tokenizer->is_eog(event.token) && !stream.sequence.request.ignore_eos;
  if (stream.detokenizer && !silent) event.text = stream.detokenizer->push(event.token);
}

void CpuExecutor::flush(LiveStream& stream, TokenEvent& event) {
  if (!stream.detokenizer) return;
  event.text += stream.stop.push(stream.detokenizer->flush());
  event.text += stream.stop.flush();
}

}  // namespace millrace
