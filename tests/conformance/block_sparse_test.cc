// Attention by patterns. What each member marks, against masks written from the papers' definitions; attention of every
// table and KV format over these masks, against softmax in double; and bits: a pattern of all blocks has those of no
// pattern, and a query's do not depend on the chunk that it is in, on other streams or on threads.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "conformance/byte_rows.h"
#include "conformance/sparse_streams.h"
#include "pattern_texts.h"

namespace millrace {
namespace {

using testing::kSparseGroup, testing::kSparseHeads, testing::kSparseKvHeads, testing::pattern_from;
using testing::PatternTexts, testing::SparseStreams;

std::vector<int64_t> marked(const AttentionPattern& pattern, const PatternPlace& at, int64_t query_block) {
  BlockMarks marks(query_block);
  pattern.mark(at, query_block, marks);
  std::vector<int64_t> blocks;
  marks.each([&](int64_t block) { blocks.push_back(block); });
  EXPECT_EQ(marks.count(), std::ssize(blocks));
  return blocks;
}

// Whether query block i sees key block j < i, by a paper.
using SparseRule = std::function<bool(const PatternPlace& at, int64_t i, int64_t j)>;
struct SparseCase {
  const char* text;
  SparseRule sees;
};

const std::vector<SparseCase>& sparse_cases() {
  using At = const PatternPlace&;
  static const std::vector<SparseCase> cases = {
      {"full:block=32", [](At, int64_t, int64_t) { return true; }},
      // Child et al., 2019, section 4.3
      {"sparse_transformer:block=16,stride=4", [](At, int64_t i, int64_t j) { return j >= i - 4 || (i - j) % 4 == 0; }},
      {"sparse_transformer:block=32,stride=3,split=heads",
       [](At at, int64_t i, int64_t j) { return at.head % 2 == 0 ? j >= i - 3 : (i - j) % 3 == 0; }},
      {"sparse_transformer:block=16,form=fixed,stride=5,summary=2",
       [](At, int64_t i, int64_t j) { return i / 5 == j / 5 || j % 5 >= 3; }},
      {"sparse_transformer:block=16,form=fixed,stride=4,split=layers",
       [](At at, int64_t i, int64_t j) { return at.layer % 2 == 0 ? i / 4 == j / 4 : j % 4 == 3; }},
      // Beltagy et al., 2020, section 3.1
      {"longformer:block=16,window=5,global=2", [](At, int64_t i, int64_t j) { return i - j < 5 || j < 2; }},
      {"longformer:block=16,window=4,global=0,dilation=3,dilated_heads=1,dilated_from=1",
       [](At at, int64_t i, int64_t j) {
         const bool dilated = at.layer >= 1 && at.head == at.heads - 1;
         return dilated ? (i - j) % 3 == 0 && (i - j) / 3 < 4 : i - j < 4;
       }},
      // Zaheer et al., 2020, section 2; the random blocks have a test of their own
      {"bigbird:block=16,window=3,global=2,random=0", [](At, int64_t i, int64_t j) { return i - j < 3 || j < 2; }},
      // Xiao et al., 2023, section 3.2
      {"sink_window:block=16,sinks=1,window=6", [](At, int64_t i, int64_t j) { return i - j < 6 || j < 1; }},
      // Fu et al., 2024, section 4.1: S = alpha + beta N
      {"semsa:block=16,sinks=2,windows=3.2+25.9.1+100.4.5",
       [](At at, int64_t i, int64_t j) {
         constexpr double kAlpha[] = {3, 2, 9, 1, 4, 5}, kBeta[] = {0, 0.25, 0, 1, 0, 0};
         const auto head = static_cast<size_t>(at.layer * at.heads + at.head) % 6;
         return j < 2 || static_cast<double>(i - j) < std::floor(kAlpha[head] + kBeta[head] * static_cast<double>(i));
       }},
      // Feng et al., 2022, section 4.1; the hops have tests of their own
      {"diffuser:block=16,window=4,global=1,random=0", [](At, int64_t i, int64_t j) { return i - j < 4 || j < 1; }},
      // Dai et al., 2023: dense regions, and nothing between them
      {"structured_sparse:block=16,region=4,reach=1,strip=2",
       [](At, int64_t i, int64_t j) { return j < 2 || i / 4 - j / 4 <= 1; }},
      {"structured_sparse:block=32,region=3,reach=0,strip=0", [](At, int64_t i, int64_t j) { return i / 3 == j / 3; }},
      // Pagliardini et al., 2023, section 3.2, without what is random, which has a test of its own
      {"sparse_flash_attention:block=16,form=drop,drop=1,sinks=2,window=3",
       [](At, int64_t i, int64_t j) { return i - j < 3 || j < 2; }},
  };
  return cases;
}

TEST(AttentionPatterns, MarkWhatThePapersDefine) {
  std::set<std::string> covered = {"window"};
  for (const auto& [text, sees] : sparse_cases()) {
    SCOPED_TRACE(text);
    const auto pattern = pattern_from(text);
    ASSERT_TRUE(pattern);
    covered.insert(std::string(text).substr(0, std::string(text).find(':')));
    for (int64_t layer : {0, 1, 2})
      for (int64_t head = 0; head < 4; ++head)
        for (int64_t i = 0; i < 150; ++i) {
          std::vector<int64_t> expected;
          for (int64_t j = 0; j < i; ++j)
            if (sees({layer, head, 4}, i, j)) expected.push_back(j);
          ASSERT_EQ(marked(*pattern, {layer, head, 4}, i), expected)
              << "layer " << layer << " head " << head << " " << i;
        }
  }
  for (const auto& entry : attention_patterns().entries())  // dynamic ones: chosen_blocks_test.cc
    EXPECT_TRUE(covered.contains(entry.info.name) || dynamic_pattern(pattern_from(entry.info.name).get()))
        << entry.info.name;
}

TEST(AttentionPatterns, BigBirdDrawsDistinctBlocksFromTheSeed) {
  const auto pattern = pattern_from("bigbird:window=3,global=2,random=4,seed=7");
  const auto other = pattern_from("bigbird:window=3,global=2,random=4,seed=8");
  std::vector<int64_t> drawn(40);
  int64_t same_head = 0, same_seed = 0;
  for (int64_t layer = 0; layer < 100; ++layer) {
    for (int64_t i : {4, 7, 9, 40}) {
      const auto blocks = marked(*pattern, {layer, 0, 2}, i);
      int64_t random = 0;
      for (int64_t j : blocks) random += j >= 2 && i - j >= 3;
      ASSERT_EQ(random, std::min<int64_t>(4, std::max<int64_t>(0, i - 4)));
      ASSERT_EQ(std::ssize(blocks), random + std::min<int64_t>(4, i));
      ASSERT_EQ(marked(*pattern, {layer, 0, 2}, i), blocks);
    }
    for (int64_t j : marked(*pattern, {layer, 0, 2}, 40)) ++drawn[static_cast<size_t>(j)];
    same_head += marked(*pattern, {layer, 0, 2}, 40) == marked(*pattern, {layer, 1, 2}, 40);
    same_seed += marked(*pattern, {layer, 0, 2}, 40) == marked(*other, {layer, 0, 2}, 40);
  }
  for (int64_t j = 2; j < 38; ++j) EXPECT_NE(drawn[static_cast<size_t>(j)], 0) << j;  // of 36 with 4 draws each
  EXPECT_LE(same_head, 2);
  EXPECT_LE(same_seed, 2);
}

// Each head draws its own blocks of keys, which none of its queries sees behind the window, and of queries, which see
// only the window and the sinks.
TEST(AttentionPatterns, SparseFlashDropsBlocksOfKeysAndQueries) {
  const std::string text = "sparse_flash_attention:form=drop,drop=0.4,drop_queries=0.25,sinks=1,window=2";
  const auto pattern = pattern_from(text + ",seed=7"), other = pattern_from(text + ",seed=8");
  constexpr int64_t kBlocks = 60;
  const auto sees = [&](const AttentionPattern& from, const PatternPlace& at) {
    std::vector<std::vector<bool>> out;
    for (int64_t i = 0; i < kBlocks; ++i) {
      auto& row = out.emplace_back(kBlocks);
      for (int64_t j : marked(from, at, i)) row[static_cast<size_t>(j)] = true;
    }
    return out;
  };
  int64_t dropped_keys = 0, dropped_queries = 0, keys = 0, queries = 0;
  for (int64_t layer = 0; layer < 10; ++layer)
    for (int64_t head = 0; head < 4; ++head) {
      const auto own = sees(*pattern, {layer, head, 4});
      EXPECT_NE(own, sees(*pattern, {layer, (head + 1) % 4, 4}));
      EXPECT_NE(own, sees(*pattern, {layer + 1, head, 4}));
      EXPECT_NE(own, sees(*other, {layer, head, 4}));
      std::vector<bool> kept;  // as the last query that is not dropped sees them
      for (size_t i = kBlocks - 20; i < kBlocks; ++i) {
        const bool alone = std::count(own[i].begin(), own[i].end(), true) == 2;  // the sink and the window
        dropped_queries += alone;
        ++queries;
        if (!alone) kept = own[i];
      }
      for (size_t j = 1; j < kBlocks - 22; ++j) {
        ++keys;
        dropped_keys += !kept[j];
        for (size_t i = kBlocks - 20; i < kBlocks; ++i) {
          const bool alone = std::count(own[i].begin(), own[i].end(), true) == 2;
          ASSERT_EQ(own[i][j], !alone && kept[j]) << i << " " << j;
        }
      }
    }
  EXPECT_NEAR(static_cast<double>(dropped_keys) / static_cast<double>(keys), 0.4, 0.05);
  EXPECT_NEAR(static_cast<double>(dropped_queries) / static_cast<double>(queries), 0.25, 0.05);
}

TEST(AttentionPatterns, DensityCountsPairs) {
  EXPECT_DOUBLE_EQ(pattern_density(*pattern_from("full"), 2, 2, 1000), 1.0);
  // Blocks 0 and 1 see all; blocks 2 and 3 miss one and two: of 2080 pairs 3 * 16 * 16 are left out.
  EXPECT_DOUBLE_EQ(pattern_density(*pattern_from("sink_window:block=16,sinks=0,window=2"), 1, 1, 64),
                   1 - 3 * 256 / 2080.0);
}

TEST(AttentionPatterns, ErrorsAreExact) {
  const auto refusal = [](const char* text) { return make_attention_pattern(text).error().message; };
  EXPECT_EQ(refusal("dense"), "attention: unknown 'dense'; available: " + attention_patterns().names());
  EXPECT_EQ(refusal("window"), "attention window: the model's layers determine it");
  EXPECT_EQ(refusal("sparse_transformer:form=round"),
            "attention sparse_transformer: form: must be strided or fixed, got 'round'");
  EXPECT_EQ(refusal("sparse_transformer:split=all"),
            "attention sparse_transformer: split: must be merged, heads or layers, got 'all'");
  for (const char* bad :
       {"semsa:windows=3..4", "semsa:windows=0", "semsa:windows=3+101", "semsa:windows=3x", "semsa:windows="})
    EXPECT_TRUE(refusal(bad).starts_with("attention semsa: windows: must be blocks, 1 to 65536")) << refusal(bad);
  EXPECT_EQ(refusal("sparse_flash_attention:form=both"),
            "attention sparse_flash_attention: form: must be hash or drop, got 'both'");
  EXPECT_EQ(refusal("reformer:buckets=7"), "attention reformer: buckets: must be even");
  EXPECT_EQ(refusal("sparse_transformer:form=fixed,stride=2,summary=3"),
            "attention sparse_transformer: summary: must be at most the stride");
}

TEST(BlockSparse, IsSoftmaxOverTheMask) {
  for (const KernelTable& table : testing::attention_tables())
    for (const char* format : {"f32", "f16", "bf16", "q8_0"})
      for (const SparseCase& one : {sparse_cases()[2], sparse_cases()[3], sparse_cases()[6], sparse_cases()[8]}) {
        SCOPED_TRACE(isa_name(table.isa) + " " + format + " " + one.text);
        const auto pattern = pattern_from(one.text);
        SparseStreams s(table, *find_format(format), 64, 16, format[0] == 'b' ? 2.0f : 0.0f);
        s.add(520, 60, 1);
        s.add(300, 1, 2);
        const auto actual = s.run(pattern.get()), q = s.queries();
        const bool rounded = s.head_dim <= table.find_attention(find_format(format))->bf16_head_dim;
        const bool operands = rounded && !testing::multiplies_bytes(table, *find_format(format));
        for (const BatchSpan& span : s.batch.spans)
          for (int64_t i = 0; i < span.count; i += 29)
            for (int64_t h = 0; h < kSparseHeads; ++h) {
              const int64_t slot = span.first_slot + i, own = slot / pattern->block(), kv_head = h / kSparseGroup;
              const int64_t row = ((span.begin + i) * kSparseHeads + h) * s.head_dim;
              const auto expected = s.reference(
                  span, slot, q.data() + row, kv_head,
                  [&](int64_t key) {
                    const int64_t block = key / pattern->block();
                    return block == own || one.sees({0, kv_head, kSparseKvHeads}, own, block);
                  },
                  operands);
              for (int64_t d = 0; d < s.head_dim; ++d)
                ASSERT_NEAR(actual[static_cast<size_t>(row + d)], expected[static_cast<size_t>(d)],
                            rounded ? 6e-3 : 1e-5)
                    << "slot " << slot << " head " << h << " dim " << d;
            }
      }
}

// label(arm-slow): takes up to half a minute on a simulated processor, and native runs test it
TEST(BlockSparse, AllBlocksHaveTheBitsOfNoPattern) {
  for (const KernelTable& table : testing::attention_tables())
    for (const char* format : {"f32", "f16", "bf16", "q8_0"}) {
      const int64_t block_tokens = format[0] == 'q' ? 32 : 16;
      SCOPED_TRACE(isa_name(table.isa) + " " + format);
      for (const PatternTexts& texts : testing::pattern_texts()) {
        const auto pattern = pattern_from(texts.all);
        if (dynamic_pattern(pattern.get()) || pattern->block() % block_tokens != 0) continue;  // chosen_blocks_test.cc
        SparseStreams s(table, *find_format(format), 64, block_tokens, 0);
        s.add(420, 40, 1);
        s.add(300, 1, 2);
        EXPECT_TRUE(testing::same_bits(s.run(pattern.get()), s.run(nullptr))) << texts.all;
      }
      SparseStreams lone(table, *find_format(format), 64, block_tokens, 0);
      lone.add(420, 2, 1);
      EXPECT_TRUE(testing::same_bits(lone.run(pattern_from("full").get(), 3), lone.run(nullptr, 3)));
    }
}

// label(arm-slow): takes up to half a minute on a simulated processor, and native runs test it
TEST(BlockSparse, BitsDoNotDependOnChunksStreamsAndThreads) {
  for (const KernelTable& table : testing::attention_tables())
    for (const PatternTexts& texts : testing::pattern_texts()) {
      if (texts.some.empty()) continue;
      SCOPED_TRACE(isa_name(table.isa) + " " + texts.some);
      const auto pattern = pattern_from(texts.some);
      if (pattern_layer_sets(pattern.get()) > 0) continue;  // chosen_blocks_test.cc, hop_values_test.cc
      SparseStreams whole(table, *find_format("f16"), 64, 16, 0);
      whole.add(420, 420, 1);
      const auto expected = whole.run(pattern.get());
      EXPECT_FALSE(testing::same_bits(whole.run(nullptr), expected));
      const int64_t width = kSparseHeads * whole.head_dim;
      for (const auto& [slots, count] :
           {std::pair<int64_t, int64_t>{420, 1}, {419, 7}, {410, 130}, {300, 299}, {63, 5}}) {
        SparseStreams part(table, *find_format("f16"), 64, 16, 0);
        part.add(100, 70, 9);
        part.add(slots, count, 1);
        const auto actual = part.run(pattern.get(), count % 3 + 1);
        const std::vector<float> tail(actual.begin() + 70 * width, actual.end());
        const auto first = expected.begin() + (slots - count) * width;
        EXPECT_TRUE(testing::same_bits(tail, std::vector<float>(first, first + count * width)))
            << slots << " " << count;
      }
    }
}

}  // namespace
}  // namespace millrace
