#include "attention/block_sums.h"

#include <cmath>

#include "attention/block_sparse.h"
#include "attention/block_weights.h"
#include "attention/key_summaries.h"
#include "attention/row_formats.h"
#include "attention/top_blocks.h"

namespace millrace {
namespace {

struct BlockSum {
  float block;  // -1: none
  float sum;
};
static_assert(sizeof(BlockSum) == 2 * sizeof(float));

// The values that are stored behind the summary of a block.
class StoredSums {
 public:
  StoredSums(float* summary, const DynamicPattern& pattern, int64_t head_dim)
      : present_(summary + pattern.summary_floats(head_dim)), kept_(static_cast<size_t>(pattern.sums().kept)) {}

  float& present() const { return *present_; }
  std::span<BlockSum> sums() const { return {reinterpret_cast<BlockSum*>(present_ + 1), kept_}; }

 private:
  float* present_;
  size_t kept_;
};

// The sums of one KV head after the last token of a block, which is the unit's query.
class SumFinding {
 public:
  SumFinding(const VisibleUnit& u, const DynamicPattern& pattern, float* scratch, const uint8_t** pointers)
      : u_(u),
        pattern_(pattern),
        pointers_(pointers),
        group_(u.layer.heads / u.layer.kv_heads),
        own_((u.span.first_slot + u.first) / pattern.block()),
        blocks_(own_ + 1),
        table_(u.batch.tables(u.layer.group).data() + u.span.table),
        partial_(partial_at(scratch, group_)),
        logs_(scratch + partial_floats(group_, u.layer.values())),
        sums_(logs_ + group_ * blocks_),
        work_(sums_ + blocks_) {}

  void run() {
    BlockMarks seen(blocks_);
    mark_seen(seen);
    const float* q = u_.q + ((u_.span.begin + u_.first) * u_.layer.heads + u_.kv_head * group_) * u_.layer.head_dim;
    seen.each([&](int64_t block) {
      weigh_block(u_, pattern_.block(), block, q, 1, partial_, pointers_, logs_ + block, blocks_);
    });
    std::fill_n(sums_, blocks_, 0.0f);
    if (own_ > 0) add_earlier();
    for (int64_t g = 0; g < group_; ++g) add_weights(logs_ + g * blocks_, seen);
    store();
  }

 private:
  StoredSums stored(int64_t block) const {
    return {key_summary(u_.kv, u_.layer.layer, u_.kv_head, table_, block, pattern_.block()), pattern_,
            u_.layer.head_dim};
  }
  PatternPlace at() const { return {u_.layer.layer, u_.kv_head, u_.layer.kv_heads}; }

  void mark_seen(BlockMarks& seen) const {
    seen.add(own_);
    if (!pattern_.applies(u_.span.answer)) return seen.add(0, own_);
    BlockMarks earlier(own_);
    pattern_.mark(at(), own_, earlier);
    mark_sums(u_.kv, u_.layer, pattern_, table_, u_.kv_head, own_, earlier);
    earlier.each([&](int64_t block) { seen.add(block); });
  }

  void add_earlier() {
    const StoredSums earlier = stored(own_ - 1);
    if (earlier.present() != 1) return;
    for (const BlockSum& one : earlier.sums()) {
      if (!(one.block >= 0 && one.block < static_cast<float>(own_))) return;
      sums_[static_cast<int64_t>(one.block)] = one.sum;
    }
  }

  // Adds the softmax of one head's weights.
  void add_weights(float* logs, const BlockMarks& seen) {
    float most = logs[own_], sum = 0;
    seen.each([&](int64_t block) { most = std::max(most, logs[block]); });
    seen.each([&](int64_t block) { sum += logs[block] = std::exp(logs[block] - most); });
    seen.each([&](int64_t block) { sums_[block] += logs[block] / sum; });
  }

  void store() {
    const auto blocks = static_cast<size_t>(blocks_);
    std::replace_if(
        sums_, sums_ + blocks, [](float sum) { return !std::isfinite(sum); }, 0.0f);  // sortable
    const StoredSums to = stored(own_);
    const std::span<BlockSum> out = to.sums();
    BlockMarks kept(blocks_);
    pattern_.mark(at(), blocks_, kept);  // those of the next block's queries
    mark_top({sums_, blocks}, std::ssize(out) - kept.count(), {work_, blocks}, kept);
    size_t count = 0;
    kept.each([&](int64_t block) {
      if (count < out.size()) out[count++] = {static_cast<float>(block), sums_[block]};
    });
    std::fill(out.begin() + static_cast<std::ptrdiff_t>(count), out.end(), BlockSum{-1, 0});
    std::sort(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count),
              [](const BlockSum& a, const BlockSum& b) { return a.sum != b.sum ? a.sum > b.sum : a.block > b.block; });
    to.present() = 1;
  }

  const VisibleUnit& u_;
  const DynamicPattern& pattern_;
  const uint8_t** pointers_;
  const int64_t group_, own_, blocks_;
  const int32_t* table_;
  const Partial partial_;
  float* logs_;          // [group, blocks]
  float *sums_, *work_;  // [blocks]
};

int64_t completed_blocks(const BatchSpan& span, int64_t block) {
  return (span.first_slot + span.count) / block - span.first_slot / block;
}

}  // namespace

int64_t sum_floats(const DynamicPattern& pattern) {
  const int64_t kept = pattern.sums().kept;
  return kept == 0 ? 0 : 1 + 2 * kept;
}

int64_t sum_scratch_floats(const DynamicPattern* pattern, int64_t context, int64_t group, int64_t head_dim,
                           int64_t value_dim) {
  if (!pattern || pattern->sums().kept == 0) return 0;
  const int64_t blocks = context / pattern->block() + 1;
  return partial_floats(group, std::max(value_dim, head_dim)) + (group + 2) * blocks;
}

void find_sums(const Batch& batch, const AttentionLayer& layer, const KernelTable& kernels, ThreadPool& pool,
               KvPool& kv, const float* q, int64_t context, float* scratch, const uint8_t** pointers,
               const CodecTiles* tiles) {
  const DynamicPattern* pattern = dynamic_pattern(pattern_of(layer, context));
  if (!pattern || pattern->sums().kept == 0) return;
  const int64_t group = layer.heads / layer.kv_heads, block = pattern->block();
  const std::vector<BatchSpan>& spans = batch.spans_of(layer.group);
  if (std::ranges::none_of(spans, [&](const BatchSpan& span) { return completed_blocks(span, block) > 0; })) return;
  const int64_t floats = sum_scratch_floats(pattern, context, group, layer.head_dim, layer.values());
  const int64_t pointer_slot = attention_scratch_pointers(1, context, kv.layout().block_tokens);
  const AttentionKernel& kernel = attention_kernel(kernels, kv.layout());
  pool.parallel_for(std::ssize(spans) * layer.kv_heads, [&](int64_t index, int worker) {
    const BatchSpan& span = spans[static_cast<size_t>(index / layer.kv_heads)];
    const int64_t first = span.first_slot / block;
    for (int64_t b = first; b < first + completed_blocks(span, block); ++b) {
      VisibleUnit unit{
          batch, span, layer, kernels, kv, kernel, q, index % layer.kv_heads, (b + 1) * block - 1 - span.first_slot, 1};
      unit.encoded = tiles;
      unit.worker = worker;
      SumFinding(unit, *pattern, scratch + worker * floats, pointers + worker * pointer_slot).run();
    }
  });
}

void forget_sums(const DynamicPattern& pattern, const KvLayer& own, KvPool& kv, const int32_t* table, int64_t kv_head,
                 int64_t block) {
  if (pattern.sums().kept == 0) return;
  const int64_t layer = own.side->layer;
  StoredSums(key_summary(kv, layer, kv_head, table, block, pattern.block()), pattern,
             kv.layout().layers[static_cast<size_t>(layer)].head_dim)
      .present() = 0;
}

void mark_sums(KvPool& kv, const AttentionLayer& layer, const DynamicPattern& pattern, const int32_t* table,
               int64_t kv_head, int64_t query_block, BlockMarks& marks) {
  if (query_block == 0) return;
  const StoredSums stored(key_summary(kv, layer.layer, kv_head, table, query_block - 1, pattern.block()), pattern,
                          layer.head_dim);
  if (stored.present() != 1) return marks.add(0, query_block);
  int64_t left = pattern.sums().top;
  for (const BlockSum& one : stored.sums()) {
    if (left == 0 || !(one.block >= 0 && one.block < static_cast<float>(query_block))) return;
    const auto block = static_cast<int64_t>(one.block);
    if (marks.has(block)) continue;
    marks.add(block);
    --left;
  }
}

}  // namespace millrace
