#include "attention/full.h"

#include <algorithm>

namespace millrace {
namespace {

// A unit is (span, KV head, tile of queries). A prefill unit runs its partitions one after the other in its worker's
// scratch; a decode unit may be spread over workers, one partition a task. Both merge the same partials in the
// same order, so which way is taken does not show in the bits.
constexpr int64_t kQueryTile = 16;
constexpr int64_t kSplitQueries = 4;  // spans of at most so many queries may be spread over partitions

struct Unit {
  const BatchSpan* span;
  int64_t head;         // KV head
  int64_t first;        // query in span
  int64_t queries;
  int64_t part_begin;   // first partition with a visible key
  int64_t part_end;
};

struct Attend {
  const Batch& batch;
  const AttentionLayer& layer;
  const KernelTable& kernels;
  KvPool& kv;
  const AttentionKernel* kernel;
  const float* q;
  float* out;
  int64_t group;

  int64_t units_of(const BatchSpan& span) const { return layer.kv_heads * ((span.count + kQueryTile - 1) / kQueryTile); }

  Unit unit(const BatchSpan& span, int64_t index) const {
    int64_t tiles = (span.count + kQueryTile - 1) / kQueryTile;
    Unit u{&span, index / tiles, index % tiles * kQueryTile, 0, 0, 0};
    u.queries = std::min(kQueryTile, span.count - u.first);
    int64_t last_key = span.first_slot + u.first + u.queries;  // exclusive
    int64_t first_key = layer.window > 0 ? std::max<int64_t>(0, span.first_slot + u.first - layer.window + 1) : 0;
    u.part_begin = first_key / kAttentionPartition;
    u.part_end = (last_key + kAttentionPartition - 1) / kAttentionPartition;
    return u;
  }

  // Runs one partition into max | sum | acc laid out for the whole unit: partial p of `parts`.
  void run_partition(const Unit& u, int64_t part, float* scratch, const uint8_t** pointers) const {
    const int64_t rows = u.queries * group;
    const int64_t parts = u.part_end - u.part_begin;
    const int64_t p = part - u.part_begin;
    const int64_t block_tokens = kv.layout().block_tokens;
    AttentionArgs args;
    const int64_t width = layer.heads * layer.head_dim;
    args.q = q + (u.span->begin + u.first) * width + u.head * group * layer.head_dim;
    args.q_stride = width;
    args.queries = u.queries;
    args.group = group;
    args.head_dim = layer.head_dim;
    args.first_query = u.span->first_slot + u.first;
    args.key_begin = part * kAttentionPartition;
    args.key_end = std::min(args.key_begin + kAttentionPartition, args.first_query + u.queries);
    args.window = layer.window;
    args.softcap = layer.softcap;
    args.block_tokens = block_tokens;
    args.row_bytes = kv.row_bytes(layer.layer);
    const int64_t block_end = (args.key_end + block_tokens - 1) / block_tokens;
    const uint8_t** k_blocks = pointers;  // indexed from slot 0; only this partition's entries are filled
    const uint8_t** v_blocks = pointers + block_end;
    for (int64_t b = args.key_begin / block_tokens; b < block_end; ++b) {
      BlockId block = batch.block_tables[u.span->table + b];
      k_blocks[b] = kv.keys(layer.layer, block, u.head);
      v_blocks[b] = kv.values(layer.layer, block, u.head);
    }
    args.k_blocks = k_blocks;
    args.v_blocks = v_blocks;
    args.max = scratch + p * rows;
    args.sum = scratch + (parts + p) * rows;
    args.acc = scratch + (2 * parts + p * layer.head_dim) * rows;
    kernel->run(args);
  }

  // Merges a unit's partials behind them in the scratch, then spreads the rows: one query's heads lie together in
  // `out`, queries are a whole row apart.
  void merge(const Unit& u, float* scratch) const {
    const int64_t rows = u.queries * group;
    const int64_t parts = u.part_end - u.part_begin;
    const int64_t width = layer.heads * layer.head_dim;
    float* merged = scratch + parts * rows * (2 + layer.head_dim);
    kernels.attention_merge(parts, rows, group, layer.head_dim, scratch, scratch + parts * rows,
                            scratch + 2 * parts * rows, nullptr, merged);
    float* first = out + (u.span->begin + u.first) * width + u.head * group * layer.head_dim;
    for (int64_t i = 0; i < u.queries; ++i)
      std::copy_n(merged + i * group * layer.head_dim, group * layer.head_dim, first + i * width);
  }
};

int64_t partitions(int64_t context) { return (context + kAttentionPartition - 1) / kAttentionPartition + 1; }

int64_t slot_floats(int64_t queries, int64_t context, int64_t group, int64_t head_dim) {
  return queries * group * (partitions(context) * (2 + head_dim) + head_dim);
}

// Few queries over many partitions: every partition of every head is a task of its own.
void attend_split(const Attend& a, const BatchSpan& span, ThreadPool& pool, float* scratch, int64_t slot,
                  const uint8_t** pointers, int64_t pointer_slot) {
  const int64_t parts = [&] { Unit u = a.unit(span, 0); return u.part_end - u.part_begin; }();
  pool.parallel_for(a.layer.kv_heads * parts, [&](int64_t task, int worker) {
    Unit u = a.unit(span, task / parts);
    a.run_partition(u, u.part_begin + task % parts, scratch + task / parts * slot, pointers + worker * pointer_slot);
  });
  for (int64_t head = 0; head < a.layer.kv_heads; ++head) a.merge(a.unit(span, head), scratch + head * slot);
}

}  // namespace

int64_t attention_scratch_floats(int64_t threads, int64_t context, int64_t group, int64_t head_dim, int64_t kv_heads) {
  return std::max(threads * slot_floats(kQueryTile, context, group, head_dim),
                  kv_heads * slot_floats(kSplitQueries, context, group, head_dim));
}

int64_t attention_scratch_pointers(int64_t threads, int64_t context, int64_t block_tokens) {
  return threads * 2 * (context / block_tokens + 2);
}

void attend(const Batch& batch, const AttentionLayer& layer, const KernelTable& kernels, ThreadPool& pool, KvPool& kv,
            const float* q, float* out, int64_t context, float* scratch, const uint8_t** pointers) {
  const Attend a{batch, layer, kernels, kv, kernels.find_attention(kv.layout().format), q, out, layer.heads / layer.kv_heads};
  const int64_t pointer_slot = attention_scratch_pointers(1, context, kv.layout().block_tokens);
  const int64_t slot = slot_floats(kQueryTile, context, a.group, layer.head_dim);
  // A lone short span is cut along its keys when its heads alone would not feed every worker.
  if (batch.spans.size() == 1 && batch.spans[0].count <= kSplitQueries && pool.threads() > 1) {
    attend_split(a, batch.spans[0], pool, scratch, slot_floats(kSplitQueries, context, a.group, layer.head_dim), pointers,
                 pointer_slot);
    return;
  }
  int64_t units = 0;
  for (const auto& span : batch.spans) units += a.units_of(span);
  pool.parallel_for(units, [&](int64_t index, int worker) {
    size_t s = 0;
    while (index >= a.units_of(batch.spans[s])) index -= a.units_of(batch.spans[s++]);
    Unit u = a.unit(batch.spans[s], index);
    float* mine = scratch + worker * slot;
    for (int64_t part = u.part_begin; part < u.part_end; ++part)
      a.run_partition(u, part, mine, pointers + worker * pointer_slot);
    a.merge(u, mine);
  });
}

}  // namespace millrace
