#include "run/plan/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/token_mass.h"
#include "base/memory.h"
#include "flow/batch.h"
#include "kv/token_eviction.h"
#include "models/eviction_gates.h"
#include "run/constraint_memory.h"
#include "run/plan/engine_plan.h"

namespace millrace {
namespace {

constexpr int64_t kRequestBytes = 16 << 10;  // of a request without its tokens: sampler, stop strings, queue entry
constexpr int64_t kRequestTokenBytes = 16;   // prompt, stream and table entries of one token
constexpr int64_t kUnreadEvents = 4096;      // of a stream with a slow reader ...
constexpr int64_t kEventBytes = 256;         // ... each
constexpr int64_t kListBytes = 32;           // of the list of an event's log-probabilities, without them
constexpr int64_t kMinRequests = 8 << 20;    // of all requests, so that engines with a short context have a queue, too
constexpr int64_t kPrefixBlockBytes = 512;   // node, key and order of one block in the prefix index, without its tokens
constexpr int64_t kIdBytes = 12;             // references, holders and state of one id
constexpr int64_t kBlockTableBytes = 16;     // its entries in the tables of a step
constexpr const char* kAdvice =
    "lower the context (-c), the KV tokens (--kv-tokens) or their format (--kv-format q8_0), the streams or the batch, "
    "keep keys on a disk (--kv-tier disk:path=FOLDER), or raise the budget (--memory)";

int64_t tables_bytes(const KvLayout& layout, const KvPoolOptions& places, int64_t blocks) {
  const int64_t ids = places.mode == KvPoolMode::virtual_ranges ? kv_pool_ids(layout, blocks, places) : blocks;
  int64_t bytes = ids * kIdBytes + blocks * kBlockTableBytes;
  for (const KvLayout& group : layout.windows)
    bytes += window_group_blocks(group, blocks, places) * kIdBytes + blocks * kBlockTableBytes;
  return bytes;
}

// Of the tables of a step that are longer than the pool has blocks (reserve_tables()).
int64_t long_tables_bytes(const KvLayout& layout, const ForwardLimits& limits, int64_t streams, bool evicts) {
  const int64_t tables =
      layout.divided() ? layout.tables()
                       : (layout.window > 0 ? 1 : 0) + (layout.window > 0 || evicts ? std::ssize(layout.windows) : 0);
  const int64_t entries = (limits.context + layout.block_tokens - 1) / layout.block_tokens;
  // In a divided layout, each further table has its own list of the step's spans, and of the spans that are kept.
  const int64_t spans = layout.divided() ? (tables - 1) * (streams + std::max(limits.tokens, limits.outputs)) : 0;
  return tables * (streams + limits.outputs) * entries * static_cast<int64_t>(sizeof(BlockId)) +
         spans * static_cast<int64_t>(sizeof(BatchSpan));
}

// The most blocks, up to `most`, whose cost is at most `bytes`; the cost grows with the blocks.
template <typename Cost>
int64_t most_blocks(int64_t most, const Cost& cost, int64_t bytes) {
  int64_t fits = 0;
  while (fits < most) {
    const int64_t middle = most - (most - fits) / 2;
    if (cost(middle) <= bytes)
      fits = middle;
    else
      most = middle - 1;
  }
  return fits;
}

int64_t largest_group(const ArchSpec& spec) {
  int64_t largest = 1;
  for (const LayerSpec& layer : spec.layers)
    if (layer.kv_heads > 0) largest = std::max(largest, layer.heads / layer.kv_heads);
  return largest;
}

int64_t most_kv_heads(const KvLayout& layout) {
  int64_t most = 1;
  for (const KvLayer& layer : layout.layers) most = std::max(most, layer.kv_heads);
  return most;
}

int64_t evictor_memory(const ArchSpec& spec, const EnginePlan& plan, const KvLayout& layout,
                       const ForwardLimits& limits, int threads) {
  const EvictionRule* rule = plan.evictor.get();
  const int64_t context = limits.context, gates = gate_scratch_bytes(spec.gates, limits.tokens);
  if (!rule) return gates;
  const int64_t drafts = plan.longest_draft(), layers = layout.tables();
  const int64_t stored = kv_demand(rule, context, context, layers), most = most_demand(rule, context, context, layers);
  const int64_t scratch =
      rule->evictor->needs_mass()
          ? threads * token_mass_bytes(most, drafts, largest_group(spec),
                                       rule->scope == EvictionScope::head ? most_kv_heads(layout) : 1,
                                       limits.switches.attention.pattern)
          : 0;
  return std::max(plan.options.max_streams, plan.options.resident_streams) *
             eviction_bytes(*rule, stored, drafts, layout.heads(), layers, spec.gates.dims) +
         scratch + gates;
}

}  // namespace

int64_t request_memory(int64_t tokens) {
  return kRequestBytes + tokens * kRequestTokenBytes + std::min(tokens, kUnreadEvents) * kEventBytes;
}

int64_t request_logprob_memory(const Request& request, int64_t tokens, bool has_sink) {
  if (request.sampling.logprobs < 0) return 0;
  const bool all = std::max(request.best_of, request.beams) > request.n;
  const int64_t events = all ? tokens : has_sink ? 0 : std::min(tokens, kUnreadEvents);
  return events * (kListBytes + request.sampling.logprobs * static_cast<int64_t>(sizeof(TokenLogprob)));
}

int64_t request_evictor_memory(const Request& request, const EvictionRule* rule, int64_t tokens, int64_t drafts,
                               int64_t kv_heads, int64_t layers, int64_t gate_dims) {
  const bool planned = request.evictor.empty() && (!rule || rule->joined == 0 || rule->whole_prompt);
  if (!rule || planned) return 0;
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  return eviction_bytes(*rule, kv_demand(rule, prompt, tokens, layers), drafts, kv_heads, layers, gate_dims);
}

Result<EngineMemory> plan_engine_memory(const ArchSpec& spec, const EnginePlan& plan, const ForwardLimits& limits,
                                        int threads, const KvLayout& layout, const Tokenizer* tokenizer,
                                        int64_t budget) {
  const EngineOptions& options = plan.options;
  EngineMemory memory;
  const ForwardBytes forward = ForwardContext::plan(spec, limits, threads, layout);
  memory.activations =
      forward.activations + long_tables_bytes(layout, limits, options.max_streams, plan.evictor != nullptr);
  if (plan.drafter)
    memory.drafter = plan.drafter->shared_bytes(spec.vocab) +
                     std::max(options.max_streams, options.resident_streams) * plan.drafter->stream_bytes();
  // And the rows being sampled, one a thread: its candidates and a copy of it. A lone stream needs one.
  memory.logits = forward.logits + 32 * spec.vocab * (options.max_streams > 1 ? threads : 1);
  memory.requests = std::max(
      kMinRequests, 2 * std::max(options.max_streams, options.resident_streams) * request_memory(limits.context));
  if (plan.tier) {
    MILLRACE_TRY(memory.swap, plan.tier->member.memory(layout, plan.tier->options));
  }
  if (plan.store) {
    MILLRACE_TRY(memory.store, plan.store->member.memory(layout, plan.store->options));
  }
  memory.evictor = evictor_memory(spec, plan, layout, limits, threads);
  memory.constraints =
      options.constraint_memory > 0 ? options.constraint_memory : default_constraint_memory(tokenizer, budget);
  if (budget > 0 && tokenizer && options.constraint_memory > 0 &&
      options.constraint_memory < least_constraint_memory(*tokenizer))
    return Error::user(fmt::format("constraint memory: this vocabulary needs {} at least, got {}",
                                   format_bytes(least_constraint_memory(*tokenizer)),
                                   format_bytes(options.constraint_memory)));
  const bool indexed = options.prefix_cache && (layout.prefixes_shared() || layout.recurrent());
  memory.prefix_block = indexed ? kPrefixBlockBytes + 4 * layout.block_tokens : 0;
  return memory;
}

Result<int64_t> plan_kv_blocks(const KvLayout& layout, const KvPoolOptions& places, const EngineMemory& memory,
                               const MemoryAccounts& accounts, int64_t wanted, int64_t least) {
  const auto blocks_of = [&](int64_t tokens) {
    return layout.tables() * ((tokens + layout.block_tokens - 1) / layout.block_tokens);
  };
  // Blocks of a model whose layers are all recurrent have no bytes, only their tables.
  const int64_t whole_block = layout.block_bytes() > 0 ? layout.block_bytes() : kIdBytes + kBlockTableBytes;
  const int64_t block_bytes = std::max<int64_t>(1, memory.kv_bytes(whole_block));
  if (blocks_of(wanted) > INT64_MAX / whole_block) return blocks_of(wanted);  // KvPool refuses it
  const AvailableMemory available = available_memory();
  const auto bytes_of = [&](int64_t blocks) {
    return layout.windows.empty() ? memory.kv_bytes(blocks * whole_block) : kv_pool_bytes(layout, blocks, places);
  };
  int64_t fit = most_blocks(std::min<int64_t>(available.bytes / block_bytes, INT32_MAX / 2), bytes_of, available.bytes);
  if (accounts.budget() > 0) {
    const int64_t left = accounts.left() - memory.fixed();
    const auto cost = [&](int64_t blocks) {
      return bytes_of(blocks) + blocks * memory.prefix_block + tables_bytes(layout, places, blocks);
    };
    const int64_t blocks = most_blocks(std::clamp<int64_t>(left / block_bytes, 0, fit), cost, left);
    if (blocks < blocks_of(least)) {
      const std::string need = format_bytes(accounts.total() + memory.fixed() + cost(blocks_of(least)));
      std::string held;
      for (const MemoryAccount& one : accounts.list())
        if (one.bytes > 0) held += fmt::format("{} {}, ", one.name, format_bytes(one.bytes));
      return Error::resource(fmt::format(
          "memory: a KV cache of {} tokens does not fit in the budget of {} next to {}activations {}, logits {}, "
          "requests {}{}{}; "
          "{} to {}",
          least, format_bytes(accounts.budget()), held, format_bytes(memory.activations), format_bytes(memory.logits),
          format_bytes(memory.requests), memory.swap > 0 ? ", swap " + format_bytes(memory.swap) : "",
          (memory.states > 0 ? ", " + layout.state_name() + " " + format_bytes(memory.states) : "") +
              (memory.state_cache > 0 ? ", state cache " + format_bytes(memory.state_cache) : "") +
              (memory.store > 0 ? ", KV store " + format_bytes(memory.store) : "") +
              (memory.evictor > 0 ? ", evictor " + format_bytes(memory.evictor) : "") +
              (memory.drafter > 0 ? ", drafter " + format_bytes(memory.drafter) : "") +
              (memory.constraints > 0 ? ", constraints " + format_bytes(memory.constraints) : ""),
          kAdvice, need));
    }
    fit = blocks;
    if (wanted == 0) return fit;
  }
  if (blocks_of(wanted) <= fit) return blocks_of(wanted);
  MILLRACE_TRY_VOID(check_memory(
      bytes_of(blocks_of(least)), fmt::format("KV cache of {} tokens", least),
      "lower the context (-c), the KV tokens (--kv-tokens) or their format (--kv-format q8_0)", available));
  return std::max(blocks_of(least), fit);
}

Result<std::vector<MemoryHold>> take_engine_memory(const EngineMemory& memory, const KvLayout& layout,
                                                   const KvPoolOptions& places, int64_t blocks,
                                                   const std::shared_ptr<MemoryAccounts>& accounts) {
  std::vector<MemoryHold> holds;
  const std::pair<const char*, int64_t> parts[] = {{"KV", memory.kv_bytes(kv_pool_bytes(layout, blocks, places))},
                                                   {"KV tables", tables_bytes(layout, places, blocks)},
                                                   {"activations", memory.activations},
                                                   {"logits", memory.logits},
                                                   {"requests", memory.requests},
                                                   {"swap", memory.swap},
                                                   {"KV store", memory.store},
                                                   {"state cache", memory.state_cache},
                                                   {"evictor", memory.evictor},
                                                   {"drafter", memory.drafter},
                                                   {"constraints", memory.constraints},
                                                   {"prefix index", blocks * memory.prefix_block}};
  for (const auto& [name, bytes] : parts) {
    MILLRACE_TRY(MemoryHold hold, MemoryHold::take(accounts, name, bytes, kAdvice));
    holds.push_back(std::move(hold));
  }
  if (memory.npu > 0) {
    MILLRACE_TRY(MemoryHold hold, MemoryHold::take(accounts, "NPU", memory.npu, kAdvice));
    holds.push_back(std::move(hold));
  }
  if (memory.states > 0) {
    MILLRACE_TRY(MemoryHold hold, MemoryHold::take(accounts, layout.state_name(), memory.states, kAdvice));
    holds.push_back(std::move(hold));
  }
  return holds;
}

std::vector<MemoryUse> memory_uses(const MemoryAccounts& accounts) {
  std::vector<MemoryUse> uses;
  for (const MemoryAccount& one : accounts.list()) uses.push_back({one.name, one.bytes, one.peak});
  return uses;
}

}  // namespace millrace
