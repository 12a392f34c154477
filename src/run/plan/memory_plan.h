// Plans an engine's memory under a budget: how much each part takes, and how much is left for keys and values.
//
//   budget | process, weights | activations | logits | requests | swap, store ... | KV: blocks x (bytes + tables) |
//            taken at load      fixed by the options                            the rest, or the requested size
#pragma once

#include <vector>

#include "base/memory_accounts.h"
#include "kv/pool.h"
#include "millrace/engine.h"
#include "models/forward_context.h"

namespace millrace {

struct EnginePlan;    // run/plan/engine_plan.h
struct EvictionRule;  // kv/token_evictor.h

class Tokenizer;

struct EngineMemory {
  int64_t activations = 0;
  int64_t logits = 0;
  int64_t requests = 0;  // the running streams' tokens and unread events, and as much again for waiting ones
  int64_t swap = 0;
  int64_t states = 0;        // bytes of recurrent layers, or tails of a KV codec
  int64_t state_cache = 0;   // copies of recurrent states in the prefix cache
  int64_t constraints = 0;   // structured output
  int64_t store = 0;         // buffers and index of the prefix store
  int64_t evictor = 0;       // bytes of the evictor's data of all streams
  int64_t drafter = 0;       // bytes of a drafter's memory; activations and logits of a draft model
  int64_t npu = 0;           // int8 copies of matrices, and their inputs (kernel=npu)
  int64_t prefix_block = 0;  // bytes of the prefix index for one block
  double kv_share = 1;       // share of the KV cache that is in memory; the remaining layers are in a file

  int64_t kv_bytes(int64_t bytes) const {
    return kv_share < 1 ? static_cast<int64_t>(kv_share * static_cast<double>(bytes)) : bytes;
  }
  int64_t fixed() const {
    return activations + logits + requests + swap + states + state_cache + store + evictor + drafter + npu +
           constraints;
  }
};

// `budget` is the model's; `tokenizer` is null if it has none. Errors: user (the prefix store's size, too little for
// constraints).
Result<EngineMemory> plan_engine_memory(const ArchSpec& spec, const EnginePlan& plan, const ForwardLimits& limits,
                                        int threads, const KvLayout& layout, const Tokenizer* tokenizer,
                                        int64_t budget);

// Bytes of one request that may grow to `tokens`, with its unread events.
int64_t request_memory(int64_t tokens);
// Bytes of log-probabilities in those events, of one answer of `tokens` tokens, and in all candidates that are held
// until the best answers are known. `has_sink`: a sink takes each event at once. 0: the request asks for none.
int64_t request_logprob_memory(const Request& request, int64_t tokens, bool has_sink);
// Bytes of the request's evictor, null if it has none, for each of its streams of `tokens` tokens. Returns 0 for the
// engine's own evictor, whose memory was planned with the engine, unless documents are stored whole in addition to a
// budget that holds for prompts.
int64_t request_evictor_memory(const Request& request, const EvictionRule* rule, int64_t tokens, int64_t drafts,
                               int64_t kv_heads = 1, int64_t layers = 1, int64_t gate_dims = 0);

// Returns the number of blocks for `wanted` tokens, or for fewer, at least `least`, if memory is short. With a budget
// and `wanted` 0: the largest number that fits. Errors: resource.
Result<int64_t> plan_kv_blocks(const KvLayout& layout, const KvPoolOptions& places, const EngineMemory& memory,
                               const MemoryAccounts& accounts, int64_t wanted, int64_t least);

// Takes every part from its account.
Result<std::vector<MemoryHold>> take_engine_memory(const EngineMemory& memory, const KvLayout& layout,
                                                   const KvPoolOptions& places, int64_t blocks,
                                                   const std::shared_ptr<MemoryAccounts>& accounts);

std::vector<MemoryUse> memory_uses(const MemoryAccounts& accounts);

}  // namespace millrace
