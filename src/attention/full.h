// Attention over paged keys and values, full or sliding-window: FlashAttention's online softmax (Dao et al., 2022),
// split along the keys at fixed boundaries and merged in order (Flash-Decoding, Dao et al., 2023), so results are
// bit-identical for any number of threads, any batch and any prefill chunks.
#pragma once

#include "attention/switches.h"
#include "base/thread_pool.h"
#include "flow/batch.h"
#include "kernels/kernel_table.h"
#include "kv/pool.h"

namespace millrace {

class CodecTiles;
class SharedPrefixes;
struct KeyLifetimes;

struct AttentionLayer {
  int64_t layer = 0;  // index in the pool
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;  // dims of a query or key
  int64_t window = 0;
  float softcap = 0;
  int64_t group = 0;      // index of the layer's group in the KV pool, which selects the block table of the batch
  int64_t value_dim = 0;  // 0: head_dim
  AttentionSwitches switches = {};
  // true: each KV head is a separate layer and group of the pool (KvGroup::head); `layer` and `group` are those of the
  // first head. Not with a pattern, window, tiles or gates.
  bool per_head_tables = false;
  // An additional logit in each head's softmax, whose weight multiplies no value: [heads]; null: none. Not with
  // patterns that diffuse values (attention/hop_values.h).
  const float* sinks = nullptr;
  int64_t row_heads = 0;  // number of heads in a row of queries and outputs, if rows also hold other heads; 0: `heads`

  int64_t values() const { return value_dim > 0 ? value_dim : head_dim; }
  int64_t group_heads() const { return heads / kv_heads; }  // query heads that share a KV head
  int64_t q_width() const { return (row_heads > 0 ? row_heads : heads) * head_dim; }
  int64_t out_width() const { return (row_heads > 0 ? row_heads : heads) * values(); }
  // Returns the layer of one head, for layers with per_head_tables. The head's columns begin at q_column(head) in q and
  // at out_column(head) in the outputs.
  AttentionLayer of_head(int64_t head) const;
  int64_t q_column(int64_t head) const { return head * group_heads() * head_dim; }
  int64_t out_column(int64_t head) const { return head * group_heads() * values(); }
};

// Scratch for attend(): the floats of all threads, and the pointers of all threads.
int64_t attention_scratch_floats(int64_t threads, int64_t context, int64_t group, int64_t head_dim, int64_t kv_heads,
                                 int64_t value_dim = 0, const AttentionSwitches& switches = {});
int64_t attention_scratch_pointers(int64_t threads, int64_t context, int64_t block_tokens);

// Computes out [tokens, heads * value_dim] from q [tokens, heads * head_dim], which is already scaled. The batch's keys
// and values must already be stored. `context`: the value with which the scratch was sized. `tiles`: only if the pool
// has a codec. `prefixes`: those found in this batch, or null. `lifetimes`: the keys that this layer's gates hide;
// null: none.
void attend(const Batch& batch, const AttentionLayer& layer, const KernelTable& kernels, ThreadPool& pool, KvPool& kv,
            const float* q, float* out, int64_t context, float* scratch, const uint8_t** pointers,
            const CodecTiles* tiles = nullptr, const SharedPrefixes* prefixes = nullptr,
            const KeyLifetimes* lifetimes = nullptr);

}  // namespace millrace
