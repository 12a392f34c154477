// Attention where every KV head is a layer of the pool, with slots of its own: the bits of each head alone, in a pool
// of one head.
#include <gtest/gtest.h>

#include <cstring>

#include "attention/full.h"
#include "base/cpu.h"
#include "base/philox.h"

namespace millrace {
namespace {

constexpr int64_t kApartBlock = 4, kApartHeads = 6, kApartKvHeads = 3, kApartDim = 16, kApartContext = 1024;
constexpr int64_t kApartGroup = kApartHeads / kApartKvHeads;

// Rows of the batch of a stream, and the slots that each head stores with them.
struct ApartStream {
  int64_t count;
  std::vector<int64_t> slots;  // [KV heads]
};

float draw_apart(uint64_t stream, int64_t i) {
  return static_cast<float>(philox_uniform(5, stream, static_cast<uint64_t>(i))) * 4 - 2;
}

KvPool pool_of(int64_t layers, int64_t heads, bool apart) {
  KvLayout layout{find_format("f32"), kApartBlock,
                  std::vector<KvLayer>(static_cast<size_t>(layers), KvLayer{.kv_heads = heads, .head_dim = kApartDim})};
  if (apart) {
    EXPECT_TRUE(layout.use_per_head_tables().ok());
  }
  return KvPool::create(std::move(layout), 4000).value();
}

// What head `head` of stream `stream` stores at `slot`.
void fill_slot(KvPool& pool, int64_t layer, BlockId block, int64_t slot, uint64_t stream, int64_t head) {
  const int64_t at = slot % kApartBlock * pool.row_bytes(layer);
  auto* key = reinterpret_cast<float*>(pool.keys(layer, block, 0) + at);
  auto* value = reinterpret_cast<float*>(pool.values(layer, block, 0) + at);
  for (int64_t d = 0; d < kApartDim; ++d) {
    key[d] = draw_apart(stream, ((slot * kApartKvHeads + head) * 2) * kApartDim + d);
    value[d] = draw_apart(stream, ((slot * kApartKvHeads + head) * 2 + 1) * kApartDim + d);
  }
}

// The spans of one head, with blocks of `layer`.
void add_spans(KvPool& pool, int64_t layer, const std::vector<ApartStream>& streams, int64_t head,
               std::vector<BatchSpan>& spans, std::vector<int32_t>& tables) {
  int64_t begin = 0;
  for (size_t s = 0; s < streams.size(); ++s) {
    const int64_t slots = streams[s].slots[static_cast<size_t>(head)], count = streams[s].count;
    spans.push_back({begin, count, slots - count, std::ssize(tables), pool.blocks_for(slots)});
    begin += count;
    for (int64_t slot = 0; slot < slots; ++slot) {
      if (slot % kApartBlock == 0) tables.push_back(*pool.allocate());
      fill_slot(pool, layer, tables.back(), slot, s, head);
    }
  }
}

struct ApartRun {
  const KernelTable& kernels;
  ThreadPool& threads;

  std::vector<float> attend_to(const Batch& batch, const AttentionLayer& layer, KvPool& pool,
                               const std::vector<float>& q) const {
    std::vector<float> out(q.size());
    std::vector<float> scratch(static_cast<size_t>(
        attention_scratch_floats(threads.threads(), kApartContext, kApartGroup, kApartDim, layer.kv_heads)));
    std::vector<const uint8_t*> pointers(
        static_cast<size_t>(attention_scratch_pointers(threads.threads(), kApartContext, kApartBlock)));
    attend(batch, layer, kernels, threads, pool, q.data(), out.data(), kApartContext, scratch.data(), pointers.data());
    return out;
  }
};

// In the second layer of the model.
void expect_the_bits_of_each_head(const std::vector<ApartStream>& streams, const ApartRun& run) {
  KvPool pool = pool_of(2, kApartKvHeads, true);
  const int64_t first = pool.layer_of(0, 1);
  ASSERT_EQ(first, kApartKvHeads);
  ASSERT_EQ(pool.groups(), 2 * kApartKvHeads);
  Batch batch;
  for (const ApartStream& stream : streams)
    batch.tokens.resize(batch.tokens.size() + static_cast<size_t>(stream.count));
  batch.window_tables.resize(static_cast<size_t>(pool.groups() - 1));
  batch.window_spans.resize(batch.window_tables.size());
  for (int64_t head = 0; head < kApartKvHeads; ++head) {
    const auto group = static_cast<size_t>(first + head - 1);
    add_spans(pool, first + head, streams, head, batch.window_spans[group], batch.window_tables[group]);
  }
  batch.spans = batch.window_spans.back();  // of the first layer's first head, with any slots
  std::vector<float> q(static_cast<size_t>(batch.size() * kApartHeads * kApartDim));
  for (size_t i = 0; i < q.size(); ++i) q[i] = draw_apart(99, static_cast<int64_t>(i));
  AttentionLayer layer{first, kApartHeads, kApartKvHeads, kApartDim};
  layer.group = first;
  layer.per_head_tables = true;
  const std::vector<float> shown = run.attend_to(batch, layer, pool, q);

  constexpr int64_t kOwn = kApartGroup * kApartDim;
  for (int64_t head = 0; head < kApartKvHeads; ++head) {
    KvPool alone = pool_of(1, 1, false);
    Batch own;
    own.tokens = batch.tokens;
    add_spans(alone, 0, streams, head, own.spans, own.block_tables);
    std::vector<float> columns;
    for (int64_t t = 0; t < batch.size(); ++t) {
      const auto row = q.begin() + (t * kApartKvHeads + head) * kOwn;
      columns.insert(columns.end(), row, row + kOwn);
    }
    const auto expected = run.attend_to(own, {0, kApartGroup, 1, kApartDim}, alone, columns);
    for (int64_t t = 0; t < batch.size(); ++t)
      EXPECT_EQ(std::memcmp(expected.data() + t * kOwn, shown.data() + (t * kApartKvHeads + head) * kOwn,
                            static_cast<size_t>(kOwn) * sizeof(float)),
                0)
          << "head " << head << ", row " << t;
  }
}

TEST(HeadsApart, HaveTheBitsOfEachHeadAlone) {
  for (const Isa isa : {Isa::ref, *select_isa()}) {
    const KernelTable kernels = make_kernel_table(isa);
    for (const int count : {1, 3}) {
      ThreadPool threads(count);
      const ApartRun run{kernels, threads};
      expect_the_bits_of_each_head({{1, {700, 3, 261}}}, run);  // a lone token
      expect_the_bits_of_each_head({{1, {5, 40, 300}}, {7, {20, 7, 511}}, {1, {1, 1, 1}}, {33, {33, 90, 257}}}, run);
    }
  }
}

TEST(HeadsApart, LayersMustHaveEqualHeads) {
  KvLayout layout{find_format("f16"), 16, {{.kv_heads = 2, .head_dim = 8}, {.kv_heads = 3, .head_dim = 8}}};
  EXPECT_EQ(layout.use_per_head_tables().error().message,
            "KV cache: blocks by layer need layers with equal heads, so that a block fits each of them");
}

}  // namespace
}  // namespace millrace
