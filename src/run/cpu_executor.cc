#include "run/cpu_executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/pattern_layers.h"
#include "models/background_packer.h"
#include "run/cpu_setup.h"
#include "run/evictor_check.h"
#include "run/kv_places.h"
#include "run/language_model.h"
#include "run/prompt_embeddings.h"
#include "run/stored_pattern.h"
#include "sampling/schema.h"

namespace millrace {
namespace {

// Beams are ranked by the model's own distribution, so options that change it are refused.
Result<void> check_beams(const Request& request) {
  if (request.beams == 1) return {};
  const SamplingOptions& s = request.sampling;
  if (request.constraint.kind != Constraint::Kind::none)
    return Error::unsupported("beams: constraints are not supported with beam search");
  if (request.thinking.tokens >= 0)
    return Error::unsupported("beams: a thinking budget is not supported with beam search");
  if (!request.stop.empty()) return Error::unsupported("beams: stop strings are not supported with beam search");
  const bool penalties =
      s.repetition_penalty != 1 || s.frequency_penalty != 0 || s.presence_penalty != 0 || s.dry_multiplier != 0;
  if (penalties || !request.bad_words.empty() || !s.logit_bias.empty() || !s.banned_tokens.empty() ||
      !s.allowed_tokens.empty()) {
    return Error::unsupported("beams: penalties, biases, banned and allowed tokens are not supported with beam search");
  }
  return {};
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
  CpuSetup setup(*executor, options);
  MILLRACE_TRY_VOID(setup.run());
  return std::unique_ptr<Executor>(std::move(executor));
}

void CpuExecutor::start(const ForwardLimits& limits, int64_t drafts, int64_t streams) {
  kv_.emplace(*model_, *runner_, draft_.get(), features_.get());
  chooser_.emplace(CpuChooser::Engine{.model = *model_,
                                      .runner = *runner_,
                                      .rows_runner = documents_->rows_runner(),
                                      .adapters = *adapters_,
                                      .grammars = grammars_.get()},
                   limits.outputs);
  evictions_.emplace(*runner_, drafts);
  draft_positions_.reserve(static_cast<size_t>(kMaxTreeTokens));
  sampled_.reserve(static_cast<size_t>(limits.outputs));
  read_rows_.reserve(static_cast<size_t>(limits.tokens));
  reads_.reserve(static_cast<size_t>(limits.tokens));
  adapted_.reserve(static_cast<size_t>(streams));
  DraftModel* drafter = draft_.get();
  if (self_) drafter = self_.get();
  if (features_) drafter = features_.get();
  set_parts({.home = &*kv_,
             .chooser = &*chooser_,
             .draft_model = drafter,
             .documents = documents_.get(),
             .adapters = adapters_.get(),
             .accounts = model_->parts().accounts.get()});
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
  if (!request.stop.empty() && !model_->parts().tokenizer)
    return Error::unsupported("stop: the model has no tokenizer, so there is no text to match");
  if (auto stop = AnswerStops::create(request); !stop.ok()) return stop.error();
  MILLRACE_TRY_VOID(check_beams(request));
  if (request.beams > 1 && runner_->kv().by_layer()) return Error::unsupported(kBlocksByLayer);
  if (!request.adapters.empty()) MILLRACE_TRY_VOID(adapters_->find(request.adapters));
  if (request.constraint.kind != Constraint::Kind::none && !grammars_)
    return Error::unsupported("constraint: the model has no tokenizer, so there is no text to hold to it");
  return {};
}

Result<void> CpuExecutor::check_evictor(const EvictionRule& rule) const {
  MILLRACE_TRY_VOID(check_evictor_pattern(rule, runner_->limits().switches.attention.pattern, runner_->kv().layout()));
  if (features_)
    return Error::unsupported(
        "evictor: drafters that read hidden states need those of all tokens; use ngram, or a draft model");
  for (const ArchSpec* spec : specs()) MILLRACE_TRY_VOID(check_token_evictor(rule, *spec, limits_.context));
  if (draft_) MILLRACE_TRY_VOID(check_evictor_draft(draft_->model().parts().model->spec(), limits_.context));
  if (rule.moves_keys() && (draft_ || self_))
    return Error::unsupported(
        "evictor: positions=cache: drafts of a model are of positions in the text; use ngram, or positions=text");
  if (rule.evictor->gated() && self_)
    return Error::unsupported(
        "evictor: gates choose in whole passes, and drafts of this model skip layers; use ngram, or no drafter");
  MILLRACE_TRY_VOID(check_evictor_pool(rule, runner_->kv(), limits_.context));
  return check_moved_positions(rule, model_->parts().model->spec(), runner_->kv().layout());
}

std::vector<const ArchSpec*> CpuExecutor::specs() const { return specs_with_draft(*model_, draft_.get()); }

void CpuExecutor::forward(std::span<const StepWork> work) {
  EncodedDocuments* const encoded = documents_->encoded();
  chooser_->forget();
  runner_->start();
  evictions_->start();
  reads_.clear();
  sampled_.clear();
  if (encoded) encoded->begin_pass();
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
    if (item.stream->lease) encoded->add(*item.stream->lease, first_row, runner_->tokens() - first_row);
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
  if (encoded) encoded->end_pass();
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
  const int64_t block_tokens = runner_->kv().layout().block_tokens;
  const float* next = mass.mass.data();
  for (int64_t index : mass.spans) {
    const StepWork& item = work[static_cast<size_t>(index)];
    const int64_t tokens = item.chunk.first + item.chunk.count;
    auto& importance = item.stream->importance;
    const auto blocks = static_cast<size_t>(runner_->kv().blocks_for(tokens));
    importance.resize(std::max(importance.size(), blocks));
    for (size_t b = 0; b < blocks; ++b) {
      const int64_t held = std::min(block_tokens, tokens - static_cast<int64_t>(b) * block_tokens);
      importance[b] = std::max(importance[b], *next++ * static_cast<float>(tokens) / static_cast<float>(held));
    }
  }
}

}  // namespace millrace
