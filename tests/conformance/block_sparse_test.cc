// Attention by patterns. What each member marks, against masks written from the papers' definitions; attention of every
// table and KV format over these masks, against softmax in double; and bits: a pattern of all blocks has those of no
// pattern, and a query's do not depend on the chunk that it is in, on other streams or on threads.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "attention/full.h"
#include "attention/pattern.h"
#include "kernel_tables.h"
#include "tensor/half.h"

namespace millrace {
namespace {

constexpr int64_t kSparseKvHeads = 3, kSparseGroup = 2, kSparseHeads = kSparseKvHeads * kSparseGroup;
constexpr int64_t kSparseContext = 1100;

std::shared_ptr<const AttentionPattern> pattern_from(const std::string& text) {
  auto made = make_attention_pattern(text);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return made.ok() ? *made : nullptr;
}

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
  for (const auto& entry : attention_patterns().entries()) EXPECT_TRUE(covered.contains(entry.info.name));
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

TEST(AttentionPatterns, DensityCountsPairs) {
  EXPECT_DOUBLE_EQ(pattern_density(*pattern_from("full"), 2, 2, 1000), 1.0);
  // Blocks 0 and 1 see all; blocks 2 and 3 miss one and two: of 2080 pairs 3 * 16 * 16 are left out.
  EXPECT_DOUBLE_EQ(pattern_density(*pattern_from("sink_window:block=16,sinks=0,window=2"), 1, 1, 64),
                   1 - 3 * 256 / 2080.0);
}

TEST(AttentionPatterns, ErrorsAreExact) {
  const auto refusal = [](const char* text) { return make_attention_pattern(text).error().message; };
  EXPECT_EQ(
      refusal("dense"),
      "attention: unknown 'dense'; available: full, window, sparse_transformer, longformer, bigbird, sink_window");
  EXPECT_EQ(refusal("window"), "attention window: the model's layers determine it");
  EXPECT_EQ(refusal("sparse_transformer:form=round"),
            "attention sparse_transformer: form: must be strided or fixed, got 'round'");
  EXPECT_EQ(refusal("sparse_transformer:split=all"),
            "attention sparse_transformer: split: must be merged, heads or layers, got 'all'");
  EXPECT_EQ(refusal("sparse_transformer:form=fixed,stride=2,summary=3"),
            "attention sparse_transformer: summary: must be at most the stride");
}

// Streams in one pool; the last tokens of each are the batch.
struct SparseStreams {
  SparseStreams(const KernelTable& kernel_table, const Format& format, int64_t dim, int64_t tokens_per_block, float cap)
      : table(kernel_table),
        head_dim(dim),
        block_tokens(tokens_per_block),
        softcap(cap),
        codec(*kernel_table.find_codec(&format)),
        pool(KvPool::create({&format, block_tokens, {{kSparseKvHeads, dim}}}, 3 * kSparseContext / block_tokens)
                 .value()) {}

  // Rows depend on the seed and the slot.
  void add(int64_t slots, int64_t count, uint64_t seed) {
    const BatchSpan span{batch.size(), count, slots - count, std::ssize(batch.block_tables), pool.blocks_for(slots)};
    for (int64_t b = 0; b < span.table_size; ++b) batch.block_tables.push_back(*pool.allocate());
    batch.tokens.resize(static_cast<size_t>(batch.size() + count));
    batch.spans.push_back(span);
    for (int64_t slot = 0; slot < slots; ++slot)
      for (int64_t h = 0; h < kSparseKvHeads; ++h)
        for (int64_t plane : {0, 1}) {
          const auto place = static_cast<uint64_t>((slot * kSparseKvHeads + h) * 2 + plane);
          codec.encode(testing::random_values(head_dim, seed << 32 | place).data(), at(span, slot, h, plane), head_dim);
        }
  }

  uint8_t* at(const BatchSpan& span, int64_t slot, int64_t head, int64_t plane) {
    const BlockId block = batch.block_tables[static_cast<size_t>(span.table + slot / block_tokens)];
    uint8_t* rows = plane ? pool.values(0, block, head) : pool.keys(0, block, head);
    return rows + slot % block_tokens * pool.row_bytes(0);
  }

  // Queries of slot 0, 1, ... of any stream.
  std::vector<float> queries() const {
    std::vector<float> q;
    for (const BatchSpan& span : batch.spans)
      for (int64_t i = 0; i < span.count; ++i) {
        auto row = testing::random_values(kSparseHeads * head_dim, static_cast<uint64_t>(span.first_slot + i) + 99);
        for (float x : row) q.push_back(x * 1.5f / std::sqrt(static_cast<float>(head_dim)));
      }
    return q;
  }

  std::vector<float> run(const AttentionPattern* pattern, int thread_count = 1) {
    ThreadPool threads(thread_count);
    AttentionLayer layer{0, kSparseHeads, kSparseKvHeads, head_dim, 0, softcap};
    layer.switches.pattern = pattern;
    const std::vector<float> q = queries();
    std::vector<float> out(q.size(), NAN);
    std::vector<float> scratch(static_cast<size_t>(
        attention_scratch_floats(thread_count, kSparseContext, kSparseGroup, head_dim, kSparseKvHeads)));
    std::vector<const uint8_t*> pointers(
        static_cast<size_t>(attention_scratch_pointers(thread_count, kSparseContext, block_tokens)));
    attend(batch, layer, table, threads, pool, q.data(), out.data(), kSparseContext, scratch.data(), pointers.data());
    return out;
  }

  // Softmax attention of the query of a span's token over the slots that `sees` allows: [head_dim].
  std::vector<double> reference(const BatchSpan& span, int64_t slot, const float* q, int64_t kv_head,
                                const std::function<bool(int64_t)>& sees, bool rounded) {
    const auto operand = [&](float x) { return double{rounded ? bf16_to_f32(f32_to_bf16(x)) : x}; };
    std::vector<float> row(static_cast<size_t>(head_dim));
    std::vector<double> out(static_cast<size_t>(head_dim));
    double sum = 0;
    for (int64_t key = 0; key <= slot; ++key) {
      if (!sees(key)) continue;
      codec.decode(at(span, key, kv_head, 0), row.data(), head_dim);
      double score = 0;
      for (size_t d = 0; d < row.size(); ++d) score += operand(q[d]) * operand(row[d]);
      if (softcap > 0) score = softcap * std::tanh(score / softcap);
      const double weight = std::exp(score);
      codec.decode(at(span, key, kv_head, 1), row.data(), head_dim);
      for (size_t d = 0; d < row.size(); ++d) out[d] += weight * operand(row[d]);
      sum += weight;
    }
    for (double& x : out) x /= sum;
    return out;
  }

  const KernelTable& table;
  int64_t head_dim, block_tokens;
  float softcap;
  const RowCodec& codec;
  KvPool pool;
  Batch batch;
};

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
                  rounded);
              for (int64_t d = 0; d < s.head_dim; ++d)
                ASSERT_NEAR(actual[static_cast<size_t>(row + d)], expected[static_cast<size_t>(d)],
                            rounded ? 6e-3 : 1e-5)
                    << "slot " << slot << " head " << h << " dim " << d;
            }
      }
}

TEST(BlockSparse, AllBlocksHaveTheBitsOfNoPattern) {
  for (const KernelTable& table : testing::attention_tables())
    for (const char* format : {"f32", "f16", "bf16", "q8_0"}) {
      const int64_t block_tokens = format[0] == 'q' ? 32 : 16;
      SCOPED_TRACE(isa_name(table.isa) + " " + format);
      for (const char* text : {"full:block=32", "full:block=96", "sink_window:window=1000"}) {
        SparseStreams s(table, *find_format(format), 64, block_tokens, 0);
        s.add(420, 40, 1);
        s.add(300, 1, 2);
        EXPECT_TRUE(testing::same_bits(s.run(pattern_from(text).get()), s.run(nullptr))) << text;
      }
      SparseStreams lone(table, *find_format(format), 64, block_tokens, 0);
      lone.add(420, 2, 1);
      EXPECT_TRUE(testing::same_bits(lone.run(pattern_from("full").get(), 3), lone.run(nullptr, 3)));
    }
}

TEST(BlockSparse, BitsDoNotDependOnChunksStreamsAndThreads) {
  for (const KernelTable& table : testing::attention_tables())
    for (const char* text :
         {"bigbird:block=16", "sparse_transformer:block=48,stride=3,split=heads", "longformer:block=16"}) {
      SCOPED_TRACE(isa_name(table.isa) + " " + text);
      const auto pattern = pattern_from(text);
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
