#include "run/executors/cpu_setup.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "attention/pattern_layers.h"
#include "models/disk_keys.h"
#include "models/npu/products.h"
#include "models/two_batches.h"
#include "models/weight_source.h"
#include "run/compatibility/collect.h"
#include "run/language_model.h"
#include "run/plan/state_slots.h"
#include "run/plan/streamed_blocks.h"
#include "run/plan/window_blocks.h"

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

// Where the places do not fit, those that only a default asks for are left out: first the copies of states, then the
// memory for constraints, then both.
Result<int64_t> plan_blocks(const KvLayout& layout, KvPoolOptions& places, EngineMemory& memory,
                            const MemoryAccounts& accounts, int64_t wanted, int64_t least,
                            const EngineOptions& options) {
  const bool copies = options.state_cache_bytes == 0 && places.copies > 0;
  const bool constraints = options.constraint_memory <= 0 && memory.constraints > 0;
  auto planned = plan_kv_blocks(layout, places, memory, accounts, wanted, least);
  for (const auto& [drops_copies, drops_constraints] : {std::pair(true, false), {false, true}, {true, true}}) {
    if (planned.ok()) break;
    if ((drops_copies && !copies) || (drops_constraints && !constraints)) continue;
    EngineMemory fewer = memory;
    if (drops_copies) fewer.state_cache = 0;
    if (drops_constraints) fewer.constraints = 0;
    auto again = plan_kv_blocks(layout, places, fewer, accounts, wanted, least);
    if (!again.ok()) continue;
    memory = fewer;
    if (drops_copies) places.copies = 0;
    return again;
  }
  return planned;
}

}  // namespace

CpuSetup::CpuSetup(CpuExecutor& executor, const EnginePlan& plan)
    : executor_(executor),
      plan_(plan),
      options_(plan.options),
      model_(*executor.model_->parts().model),
      tokenizer_(executor.model_->parts().tokenizer.get()),
      threads_(executor.model_->parts().threads->get(options_.threads)),
      drafter_(*executor.model_, plan, threads_) {}

Result<void> CpuSetup::run() {
  MILLRACE_TRY_VOID(plan_context());
  MILLRACE_TRY_VOID(plan_layout());
  MILLRACE_TRY_VOID(plan_places());
  MILLRACE_TRY_VOID(plan_passes());
  MILLRACE_TRY(executor_.documents_, CpuDocuments::load(*executor_.model_, plan_, threads_, forward_));
  MILLRACE_TRY(const int64_t blocks, plan_memory());
  MILLRACE_TRY_VOID(create_runner(blocks));
  set_limits();
  return {};
}

Result<void> CpuSetup::plan_context() {
  int64_t& context = executor_.limits_.context;
  context = options_.context > 0 ? options_.context : model_.context();
  if (context <= model_.context()) return {};
  return Error::user(
      fmt::format("context: the model was loaded for {} tokens, {} asked for", model_.context(), context));
}

// The layers of the model, and behind them those of its drafter.
Result<void> CpuSetup::plan_layout() {
  const KernelTable& kernels = executor_.model_->parts().kernels;
  const int64_t context = executor_.limits_.context;
  if (!plan_.formats.keys) {
    std::string known;
    for (const auto& kernel : kernels.attention)
      known += fmt::format("{}{}", known.empty() ? "" : ", ", kernel.kv_format->name);
    known += ", " + kv_codecs().names();
    return Error::unsupported(fmt::format("KV format '{}'; supported: {}", options_.kv_format, known));
  }
  MILLRACE_TRY_VOID(state_facts());
  MILLRACE_TRY_VOID(drafter_.check());
  MILLRACE_TRY(layout_, engine_layout(plan_, model_.kv_layers(), context));
  MILLRACE_TRY_VOID(drafter_.load(layout_, context));
  add_draft_windows(drafter_.whole_model_layers(), context, options_.drafter, executor_.facts_);
  add_draft_heads(drafter_.whole_model_layers(), plan_.formats, options_.drafter, executor_.facts_);
  MILLRACE_TRY_VOID(resolve_engine(plan_, executor_.facts_));
  return layout_.check();
}

// Refuses combinations before the drafter's model is loaded.
Result<void> CpuSetup::state_facts() {
  const std::vector<KvLayer> layers = model_.kv_layers();
  const int64_t context = executor_.limits_.context;
  Facts& facts = executor_.facts_;
  executor_.limits_.layers = model_.spec().layer_count();
  executor_.limits_.kv_heads = layers.empty() ? 0 : layers.front().kv_heads;
  add_model(model_.spec(), context, facts);
  facts.add_if(!tokenizer_, facts::kNoTokenizer, "this model");
  facts.add_if(model_.source() && model_.source()->figures(), facts::kReadsWeights, "this model");
  add_engine(plan_, layers, context, facts);
  return resolve_engine(plan_, facts);
}

// Ranges, states and swapped blocks of streams.
Result<void> CpuSetup::plan_places() {
  if (plan_.pool == KvPoolMode::virtual_ranges) MILLRACE_TRY_VOID(layout_.use_whole_pages(sysconf(_SC_PAGESIZE)));
  places_ = {plan_.pool, executor_.limits_.context, std::max(options_.max_streams, options_.resident_streams)};
  places_.evicts = plan_.evictor != nullptr;
  if (plan_.tier) {
    MILLRACE_TRY(const int64_t bytes, plan_.tier->member.memory(layout_, plan_.tier->options));
    places_.swapped = places_.streams;
    places_.swapped_blocks = bytes / std::max<int64_t>(1, layout_.block_bytes()) + places_.streams;
  }
  if (layout_.state_bytes() > 0) {
    // One state for each running stream, each swapped one, and each drafted token that is verified.
    places_.states = places_.streams * (plan_.tier ? 2 : 1);
    if (layout_.recurrent()) places_.marks = planned_draft_states(options_, plan_.longest_draft());
    places_.states += places_.marks;
    MILLRACE_TRY(places_.copies, planned_state_copies(options_, layout_, places_.streams,
                                                      executor_.model_->parts().accounts->budget()));
  }
  return {};
}

Result<void> CpuSetup::plan_passes() {
  forward_ = step_limits(options_, plan_.longest_draft(), executor_.limits_.context);
  forward_.switches = plan_.switches;
  if (forward_.switches.expert_capacity > 0)
    return Error::user(
        "kernel padded_experts: answers would depend on the other requests of a batch; only bench and perplexity take "
        "it");
  return {};
}

// Takes the memory, and returns the blocks of the KV cache.
Result<int64_t> CpuSetup::plan_memory() {
  const std::shared_ptr<MemoryAccounts>& accounts = executor_.model_->parts().accounts;
  const bool budget = accounts->budget() > 0;
  const int64_t context = executor_.limits_.context;
  int64_t kv_tokens = options_.kv_tokens;
  const int64_t demand = longest_demand(plan_.evictor.get(), layout_, context);
  if (kv_tokens == 0 && layout_.block_bytes() == 0) kv_tokens = places_.streams * context;  // blocks without bytes
  const int64_t default_tokens = std::max(demand, std::min(options_.max_streams * demand, kDefaultKvTokens));
  if (kv_tokens == 0 && !budget) kv_tokens = default_tokens;
  const int64_t least = options_.kv_tokens > 0 ? kv_tokens : demand;  // only a default may be reduced
  MILLRACE_TRY(EngineMemory memory, plan_engine_memory(model_.spec(), plan_, forward_, threads_->threads(), layout_,
                                                       tokenizer_, accounts->budget()));
  memory.states = places_.states * layout_.state_bytes();
  if (model_.source()) memory.kv_share = key_memory_share(layout_, model_.source()->policy().keys_on_disk);
  memory.state_cache = places_.copies * layout_.state_bytes();
  memory.drafter += drafter_.memory(forward_, layout_);
  if (forward_.switches.npu) memory.npu = NpuProducts::bytes(model_, forward_);
  if (forward_.switches.workers)
    memory.activations += worker_memory(model_.spec(), forward_, layout_, threads_->threads());
  int64_t blocks = 0;
  if (plan_.key_stream) {
    MILLRACE_TRY(blocks, plan_streamed_blocks(layout_, *plan_.key_stream, *accounts,
                                              {kv_tokens > 0 ? kv_tokens : default_tokens, least}, memory, places_));
  } else {
    MILLRACE_TRY(blocks, plan_blocks(layout_, places_, memory, *accounts, kv_tokens, least, options_));
  }
  MILLRACE_TRY(executor_.memory_, take_engine_memory(memory, layout_, places_, blocks, accounts));
  if (budget) executor_.limits_.request_bytes = memory.requests;
  if (tokenizer_)
    executor_.grammars_ =
        std::make_unique<ConstraintMemory>(*tokenizer_, accounts, memory.constraints, options_.max_streams);
  return blocks;
}

Result<void> CpuSetup::create_runner(int64_t blocks) {
  CpuExecutor& made = executor_;
  MILLRACE_TRY(made.runner_, ModelRunner::create(model_, made.model_->parts().kernels,
                                                 {.threads = threads_,
                                                  .layout = std::move(layout_),
                                                  .blocks = blocks,
                                                  .places = places_,
                                                  .limits = forward_,
                                                  .reads_hidden = true,
                                                  .streams = options_.max_streams}));
  if (KvPool& kv = made.runner_->kv(); !kv.staged().turns.empty()) {
    MILLRACE_TRY(made.streamed_, StreamedKeys::create(kv, *plan_.key_stream, forward_.switches.attention.pattern,
                                                      executor_.limits_.context));
    made.runner_->context().stager = made.streamed_.get();
  }
  MILLRACE_TRY(made.draft_, drafter_.start(*made.runner_));
  made.documents_->attach(*made.runner_);
  made.start(forward_, plan_.longest_draft(), options_.max_streams);
  return {};
}

void CpuSetup::set_limits() {
  ExecutorLimits& limits = executor_.limits_;
  const ModelRunner& runner = *executor_.runner_;
  limits.tokens = forward_.tokens;
  limits.outputs = forward_.outputs;
  limits.drafts = plan_.longest_draft();
  limits.vocab = model_.spec().vocab;
  limits.gate_dims = model_.spec().gates.dims;
  limits.whole_prompts = model_.spec().encoder;
  const ForwardSwitches& switches = runner.limits().switches;
  limits.prompts_apart = has_phase(switches.attention.pattern) || switches.npu;
  limits.scratch_bytes = runner.context().bytes() + (executor_.draft_ ? executor_.draft_->scratch_bytes() : 0);
}

}  // namespace millrace
