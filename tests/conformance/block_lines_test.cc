// Lines that the last queries of earlier blocks find: which blocks a query sees, against the paper's rule computed in
// double from all queries and keys (Jiang et al., 2024, section 3.2, vertical-slash); and that neither chunks nor other
// streams show in them.
#include "attention/block_lines.h"

#include <cstring>
#include <numeric>

#include "attention/chosen_blocks.h"
#include "attention/key_summaries.h"
#include "conformance/sparse_streams.h"

namespace millrace {
namespace {

using testing::kSparseGroup, testing::kSparseHeads, testing::kSparseKvHeads, testing::pattern_from;
using testing::SparseStreams;

constexpr int64_t kLineDim = 64;

struct LineCase {
  const char* text;
  int64_t block, vertical, slash, sinks, window, last;
};

constexpr LineCase kLineCases[] = {
    {"minference:block=16,heads=v3+2,sinks=1,window=2,last=4", 16, 3, 2, 1, 2, 4},
    {"minference:block=32,heads=v,vertical=2,slash=1,sinks=0,window=1,last=3", 32, 2, 1, 0, 1, 3},
    {"minference:block=16,heads=v0+3.v0+3,sinks=2,window=1,last=1", 16, 0, 3, 2, 1, 1},
};

BlockMarks marks_of(SparseStreams& s, const DynamicPattern& pattern, int64_t query_block, int64_t kv_head,
                    size_t stream = 0) {
  BlockMarks marks(query_block);
  std::vector<float> features(kLineDim), scores(200), work(200);
  choose_blocks(s.pool, s.attention(&pattern), pattern, s.batch.block_tables.data() + s.batch.spans[stream].table,
                kv_head, query_block, s.query(query_block * pattern.block()).data() + kv_head * kSparseGroup * kLineDim,
                features.data(), scores.data(), work.data(), marks);
  return marks;
}

// Shares of a query's attention, of the last token of block `own`, that go to each block.
std::vector<double> shares(SparseStreams& s, const LineCase& c, int64_t own, int64_t head) {
  const int64_t slots = (own + 1) * c.block;
  const auto q = s.query(slots - 1);
  std::vector<float> key(kLineDim);
  std::vector<double> out(static_cast<size_t>(own + 1));
  double all = 0;
  for (int64_t slot = 0; slot < slots; ++slot) {
    s.codec.decode(s.at(s.batch.spans[0], slot, head / kSparseGroup, 0), key.data(), kLineDim);
    double score = 0;
    for (int64_t d = 0; d < kLineDim; ++d)
      score += double{q[static_cast<size_t>(head * kLineDim + d)]} * double{key[static_cast<size_t>(d)]};
    all += std::exp(score);
    out[static_cast<size_t>(slot / c.block)] += std::exp(score);
  }
  for (double& x : out) x /= all;
  return out;
}

// Of equal scores the later.
std::vector<int64_t> best(const std::vector<double>& scores, int64_t count) {
  std::vector<int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
    const double x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
    return x != y ? x > y : a > b;
  });
  order.resize(static_cast<size_t>(std::min<int64_t>(count, std::ssize(order))));
  return order;
}

TEST(BlockLines, AreWhereEarlierQueriesLook) {
  for (const LineCase& c : kLineCases) {
    SCOPED_TRACE(c.text);
    const auto pattern = std::dynamic_pointer_cast<const DynamicPattern>(pattern_from(c.text));
    ASSERT_TRUE(pattern);
    SparseStreams s(testing::attention_tables().back(), *find_format("f32"), kLineDim, 16, 0, pattern.get());
    s.add(500, 1, 1);
    for (int64_t kv_head = 0; kv_head < kSparseKvHeads; ++kv_head) {
      for (int64_t end = c.last; end * c.block < 500; end += c.last) {
        std::vector<double> vertical(static_cast<size_t>(end)), slash(static_cast<size_t>(end));
        for (int64_t own = end - c.last; own < end; ++own)
          for (int64_t g = 0; g < kSparseGroup; ++g) {
            const auto share = shares(s, c, own, kv_head * kSparseGroup + g);
            for (int64_t j = c.sinks; j <= own - c.window; ++j) {
              vertical[static_cast<size_t>(j)] += share[static_cast<size_t>(j)];
              slash[static_cast<size_t>(own - j)] += share[static_cast<size_t>(j)];
            }
          }
        for (int64_t query = end; query < std::min(end + c.last, 500 / c.block); ++query) {
          BlockMarks expected(query);
          expected.add(0, c.sinks);
          expected.add(query - c.window + 1, query);
          expected.add(end, query);
          for (int64_t j : best(vertical, c.vertical)) expected.add(j);
          for (int64_t distance : best(slash, c.slash))
            if (slash[static_cast<size_t>(distance)] > 0) expected.add(query - distance - 1, query - distance + 1);
          const BlockMarks actual = marks_of(s, *pattern, query, kv_head);
          for (int64_t j = 0; j < query; ++j) EXPECT_EQ(actual.has(j), expected.has(j)) << query << " " << j;
        }
      }
      for (int64_t query = 0; query < c.last; ++query) EXPECT_EQ(marks_of(s, *pattern, query, kv_head).count(), query);
    }
  }
}

TEST(BlockLines, DoNotDependOnChunksAndTables) {
  for (const KernelTable& table : testing::attention_tables())
    for (const LineCase& c : kLineCases) {
      SCOPED_TRACE(isa_name(table.isa) + " " + c.text);
      const auto pattern = std::dynamic_pointer_cast<const DynamicPattern>(pattern_from(c.text));
      SparseStreams s(table, *find_format("f16"), kLineDim, 16, 0, pattern.get());
      s.add(90, 1, 7);
      s.add(400, 1, 1);
      const BatchSpan span = s.batch.spans[1];
      const auto bits = [&] {
        std::vector<float> out;
        const int64_t floats = pattern->summary_floats(kLineDim) + line_floats(*pattern, kSparseGroup, kLineDim);
        for (int64_t block = c.last - 1; (block + 1) * c.block <= 400; block += c.last)
          for (int64_t h = 0; h < kSparseKvHeads; ++h) {
            const float* first = key_summary(s.pool, 0, h, s.batch.block_tables.data() + span.table, block, c.block);
            out.insert(out.end(), first, first + floats);
          }
        return out;
      };
      const auto expected = bits();
      for (int64_t chunk : {1, 7, 100}) {
        for (int64_t b = 0; b < span.table_size; ++b)
          for (int64_t h = 0; h < kSparseKvHeads; ++h)
            std::memset(s.pool.keys(1, s.batch.block_tables[static_cast<size_t>(span.table + b)], h), 255,
                        static_cast<size_t>(16 * s.pool.row_bytes(1)));
        for (int64_t begin = 0; begin < 400; begin += chunk)
          s.summarize(span, begin, std::min<int64_t>(400, begin + chunk));
        EXPECT_TRUE(testing::same_bits(bits(), expected)) << chunk;
      }
    }
}

TEST(BlockLines, ForgottenOnesLetQueriesSeeEverything) {
  const LineCase c = kLineCases[0];
  const auto pattern = std::dynamic_pointer_cast<const DynamicPattern>(pattern_from(c.text));
  SparseStreams s(testing::attention_tables().back(), *find_format("f16"), kLineDim, 16, 0, pattern.get());
  s.add(400, 1, 1);
  EXPECT_LT(marks_of(s, *pattern, 21, 0).count(), 21);
  const int32_t* table = s.batch.block_tables.data() + s.batch.spans[0].table;
  const KvLayer& own = s.pool.layout().layers[1];
  forget_lines(*pattern, own, s.pool, table, 0, 19);
  EXPECT_EQ(marks_of(s, *pattern, 21, 0).count(), 21);
  EXPECT_LT(marks_of(s, *pattern, 21, 1).count(), 21);
  for (int64_t block : {16, 17, 18}) forget_lines(*pattern, own, s.pool, table, 0, block);
  s.summarize(s.batch.spans[0], 319, 320);  // finds lines by the query of block 19 alone
  const BlockMarks one = marks_of(s, *pattern, 21, 0);
  EXPECT_LT(one.count(), 21);
  for (int64_t block : {16, 17, 18, 19}) forget_lines(*pattern, own, s.pool, table, 0, block);
  EXPECT_EQ(marks_of(s, *pattern, 21, 0).count(), 21);
}

TEST(BlockLines, BitsOfAttentionDoNotDependOnChunksStreamsAndThreads) {
  testing::expect_bits_of_whole(
      {"minference:block=16,heads=v2+1.a3.b2,last=3", "minference:block=32,heads=b1.v1+0.a1,last=1"}, kLineDim);
}

TEST(BlockLines, HeadsAreRefusedByName) {
  for (const char* heads : {"", "c", "v6", "v6+", "a0", "b1.", "a1x"}) {
    const auto made = make_attention_pattern(std::string("minference:heads=") + heads);
    ASSERT_FALSE(made.ok()) << heads;
    EXPECT_NE(made.error().message.find("heads: must be a, v or b for each head"), std::string::npos)
        << made.error().message;
  }
}

}  // namespace
}  // namespace millrace
