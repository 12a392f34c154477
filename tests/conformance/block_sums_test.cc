// Sums of attention by block: which blocks a query sees, against the rule computed in double from all queries and keys
// (Zhang et al., 2023, section 4, heavy hitters by accumulated attention, of the last query of each block); and that
// neither chunks nor other streams show in them.
#include "attention/block_sums.h"

#include <cstring>
#include <map>
#include <set>

#include "attention/chosen_blocks.h"
#include "attention/key_summaries.h"
#include "conformance/sparse_streams.h"

namespace millrace {
namespace {

using testing::kSparseGroup, testing::kSparseHeads, testing::kSparseKvHeads, testing::pattern_from;
using testing::SparseStreams;

constexpr int64_t kSumDim = 64, kSumSlots = 500;

struct SumCase {
  const char* text;
  int64_t block, top, sinks, window, tracked;
  int64_t prompt;  // tokens whose queries see every key
};

constexpr SumCase kSumCases[] = {
    {"h2o_blocks:block=16,top=3,sinks=1,window=2,tracked=5", 16, 3, 1, 2, 5, 0},
    {"h2o_blocks:block=32,top=1,sinks=0,window=1,tracked=0", 32, 1, 0, 1, 1, 0},
    {"h2o_blocks:block=16,top=3,sinks=2,window=1,tracked=40,phase=decode", 16, 3, 2, 1, 40, 320},
    {"h2o_blocks:block=16,top=2,sinks=0,window=3,tracked=4,phase=decode", 16, 2, 0, 3, 4, 160},
};

std::shared_ptr<const DynamicPattern> sum_pattern(const char* text) {
  auto pattern = std::dynamic_pointer_cast<const DynamicPattern>(pattern_from(text));
  EXPECT_TRUE(pattern);
  return pattern;
}

BlockMarks seen_blocks(SparseStreams& s, const DynamicPattern& pattern, int64_t query_block, int64_t kv_head,
                       size_t stream = 0) {
  BlockMarks marks(query_block);
  std::vector<float> work(200);
  choose_blocks(s.pool, s.attention(&pattern), pattern, s.batch.block_tables.data() + s.batch.spans[stream].table,
                kv_head, query_block, nullptr, nullptr, nullptr, work.data(), marks);
  return marks;
}

// The stream of a case: its prompt, and then an answer.
void add_stream(SparseStreams& s, const SumCase& c, int64_t chunk = kSumSlots) {
  if (s.batch.spans.empty()) s.add(kSumSlots, 1, 1);
  const BatchSpan span = s.batch.spans[0];
  for (int64_t begin = 0; begin < kSumSlots;) {
    const int64_t part = begin < c.prompt ? c.prompt : kSumSlots, end = std::min(part, begin + chunk);
    s.summarize(span, begin, end, begin >= c.prompt && c.prompt > 0);
    begin = end;
  }
}

// Shares of the attention of the last query of block `own` over the blocks of `seen`, averaged over a KV head's
// queries.
std::map<int64_t, double> shares(SparseStreams& s, const SumCase& c, const std::set<int64_t>& seen, int64_t own,
                                 int64_t kv_head) {
  const auto q = s.query((own + 1) * c.block - 1);
  std::vector<float> key(kSumDim);
  std::map<int64_t, double> out;
  for (int64_t g = 0; g < kSparseGroup; ++g) {
    std::map<int64_t, double> weights;
    double all = 0;
    for (int64_t block : seen)
      for (int64_t slot = block * c.block; slot < (block + 1) * c.block; ++slot) {
        s.codec.decode(s.at(s.batch.spans[0], slot, kv_head, 0), key.data(), kSumDim);
        double score = 0;
        for (int64_t d = 0; d < kSumDim; ++d)
          score += double{q[static_cast<size_t>((kv_head * kSparseGroup + g) * kSumDim + d)]} *
                   double{key[static_cast<size_t>(d)]};
        weights[block] += std::exp(score);
        all += std::exp(score);
      }
    for (const auto& [block, weight] : weights) out[block] += weight / all;
  }
  return out;
}

// The first and the newest blocks for queries of `query`.
std::set<int64_t> always(const SumCase& c, int64_t query) {
  std::set<int64_t> out;
  for (int64_t b = 0; b < query; ++b)
    if (b < c.sinks || b > query - c.window) out.insert(b);
  return out;
}

// `count` blocks of `sums` with the largest sums that are not in `chosen` yet; of equal ones the newer.
void add_best(const std::map<int64_t, double>& sums, int64_t count, std::set<int64_t>& chosen) {
  std::vector<std::pair<double, int64_t>> order;
  for (const auto& [block, sum] : sums)
    if (!chosen.contains(block)) order.emplace_back(sum, block);
  std::ranges::sort(order, std::greater<>());
  for (int64_t i = 0; i < std::min<int64_t>(count, std::ssize(order)); ++i)
    chosen.insert(order[static_cast<size_t>(i)].second);
}

TEST(BlockSums, AreOfTheAttentionOfEarlierQueries) {
  for (const SumCase& c : kSumCases) {
    SCOPED_TRACE(c.text);
    const auto pattern = sum_pattern(c.text);
    SparseStreams s(testing::attention_tables().back(), *find_format("f32"), kSumDim, 16, 0, pattern.get());
    add_stream(s, c);
    bool leaves_out = false;
    for (int64_t kv_head = 0; kv_head < kSparseKvHeads; ++kv_head) {
      std::map<int64_t, double> sums;
      for (int64_t own = 0; (own + 1) * c.block < kSumSlots; ++own) {
        std::set<int64_t> seen = always(c, own);
        add_best(sums, c.top, seen);
        if (own * c.block < c.prompt)
          for (int64_t b = 0; b < own; ++b) seen.insert(b);
        seen.insert(own);
        for (const auto& [block, share] : shares(s, c, seen, own, kv_head)) sums[block] += share;
        // Sums of the next query's newest and first blocks are kept, and the largest others.
        std::set<int64_t> kept = always(c, own + 1);
        add_best(sums, c.tracked + c.sinks + c.window - std::ssize(kept), kept);
        std::erase_if(sums, [&](const auto& one) { return !kept.contains(one.first); });

        std::set<int64_t> expected = always(c, own + 1);
        add_best(sums, c.top, expected);
        const BlockMarks actual = seen_blocks(s, *pattern, own + 1, kv_head);
        for (int64_t j = 0; j <= own; ++j) EXPECT_EQ(actual.has(j), expected.contains(j)) << own + 1 << " " << j;
        leaves_out = leaves_out || std::ssize(expected) < own + 1;
      }
    }
    EXPECT_TRUE(leaves_out);
  }
}

TEST(BlockSums, DoNotDependOnChunksAndTables) {
  for (const KernelTable& table : testing::attention_tables())
    for (const SumCase& c : kSumCases) {
      SCOPED_TRACE(isa_name(table.isa) + " " + c.text);
      const auto pattern = sum_pattern(c.text);
      SparseStreams s(table, *find_format("f16"), kSumDim, 16, 0, pattern.get());
      add_stream(s, c);
      const BatchSpan span = s.batch.spans[0];
      const auto bits = [&] {
        std::vector<float> out;
        for (int64_t block = 0; (block + 1) * c.block <= kSumSlots; ++block)
          for (int64_t h = 0; h < kSparseKvHeads; ++h) {
            const float* first = key_summary(s.pool, 0, h, s.batch.block_tables.data() + span.table, block, c.block);
            out.insert(out.end(), first, first + sum_floats(*pattern));
          }
        return out;
      };
      const auto expected = bits();
      for (int64_t chunk : {1, 7, 100}) {
        for (int64_t b = 0; b < span.table_size; ++b)
          for (int64_t h = 0; h < kSparseKvHeads; ++h)
            std::memset(s.pool.keys(1, s.batch.block_tables[static_cast<size_t>(span.table + b)], h), 255,
                        static_cast<size_t>(16 * s.pool.row_bytes(1)));
        add_stream(s, c, chunk);
        EXPECT_TRUE(testing::same_bits(bits(), expected)) << chunk;
      }
    }
}

TEST(BlockSums, ForgottenOnesLetQueriesSeeEverything) {
  const auto pattern = sum_pattern(kSumCases[0].text);
  SparseStreams s(testing::attention_tables().back(), *find_format("f16"), kSumDim, 16, 0, pattern.get());
  add_stream(s, kSumCases[0]);
  EXPECT_LT(seen_blocks(s, *pattern, 21, 0).count(), 21);
  const int32_t* table = s.batch.block_tables.data() + s.batch.spans[0].table;
  forget_sums(*pattern, s.pool.layout().layers[1], s.pool, table, 0, 20);
  EXPECT_EQ(seen_blocks(s, *pattern, 21, 0).count(), 21);
  EXPECT_LT(seen_blocks(s, *pattern, 21, 1).count(), 21);
  // The last query of the next block starts the sums again.
  s.summarize(s.batch.spans[0], 22 * 16 - 1, 22 * 16);
  EXPECT_EQ(seen_blocks(s, *pattern, 22, 0).count(), 3 + 1 + 1);
}

TEST(BlockSums, BitsOfAttentionDoNotDependOnChunksStreamsAndThreads) {
  testing::expect_bits_of_whole(
      {"h2o_blocks:block=16,top=3,window=2,tracked=5", "h2o_blocks:block=32,top=2,sinks=0,window=1"}, kSumDim);
}

}  // namespace
}  // namespace millrace
