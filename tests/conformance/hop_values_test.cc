// Values that diffuse: the result against sums of powers of the weights in double, and bits: without hops they are
// those of the same graph, and they do not depend on chunks, other streams or threads.
#include "attention/hop_values.h"

#include "conformance/sparse_streams.h"

namespace millrace {
namespace {

using testing::kSparseGroup, testing::kSparseHeads, testing::kSparseKvHeads, testing::pattern_from;
using testing::SparseStreams;

constexpr int64_t kDim = 32;

// Diffuses the tokens [begin, end) of the stream, and then their queries attend. `q` are those of the whole stream.
std::vector<float> run_chunk(SparseStreams& s, const AttentionPattern& pattern, const BatchSpan& span, int64_t begin,
                             int64_t end, const std::vector<float>& q, int thread_count) {
  const int64_t width = kSparseHeads * s.head_dim;
  ThreadPool threads(thread_count);
  Batch part;
  part.block_tables = s.batch.block_tables;
  part.tokens.resize(static_cast<size_t>(end - begin));
  part.spans = {{0, end - begin, begin, span.table, span.table_size}};
  std::vector<float> scratch(static_cast<size_t>(attention_scratch_floats(
      thread_count, testing::kSparseContext, kSparseGroup, s.head_dim, kSparseKvHeads, 0, {.pattern = &pattern})));
  std::vector<const uint8_t*> pointers(
      static_cast<size_t>(attention_scratch_pointers(thread_count, testing::kSparseContext, s.block_tokens)));
  std::vector<float> out(static_cast<size_t>((end - begin) * width), NAN);
  const AttentionLayer layer = s.attention(&pattern);
  const HopCall call{
      part,           layer,          s.table, threads, s.pool, q.data() + begin * width, testing::kSparseContext,
      scratch.data(), pointers.data()};
  diffuse_values(call, out.data());
  attend_last_hop(call, out.data());
  return out;
}

// Weights of every query head: [heads][tokens][tokens].
std::vector<std::vector<double>> weights_of(SparseStreams& s, const AttentionPattern& pattern, int64_t tokens,
                                            const std::vector<float>& q) {
  std::vector<std::vector<double>> out(kSparseHeads, std::vector<double>(static_cast<size_t>(tokens * tokens)));
  std::vector<float> key(static_cast<size_t>(s.head_dim));
  for (int64_t h = 0; h < kSparseHeads; ++h)
    for (int64_t i = 0; i < tokens; ++i) {
      BlockMarks marks(i / pattern.block());
      pattern.mark({0, h / kSparseGroup, kSparseKvHeads}, marks.end(), marks);
      double sum = 0;
      double* row = out[static_cast<size_t>(h)].data() + i * tokens;
      for (int64_t j = 0; j <= i; ++j) {
        if (j / pattern.block() < marks.end() && !marks.has(j / pattern.block())) continue;
        s.codec.decode(s.at(s.batch.spans[0], j, h / kSparseGroup, 0), key.data(), s.head_dim);
        double score = 0;
        for (int64_t d = 0; d < s.head_dim; ++d)
          score += double{q[static_cast<size_t>((i * kSparseHeads + h) * s.head_dim + d)]} *
                   double{key[static_cast<size_t>(d)]};
        sum += row[j] = std::exp(score);
      }
      for (int64_t j = 0; j <= i; ++j) row[j] /= sum;
    }
  return out;
}

// Feng et al., 2022, section 4.1: theta[k] = alpha (1 - alpha)^k of the k-th power, counted from the first hop; what is
// left goes to the last one. Powers after the first are of the mean over the heads of a KV head.
std::vector<double> power_sum(SparseStreams& s, const std::vector<std::vector<double>>& weights, int64_t tokens,
                              int64_t head, int64_t hops, double alpha) {
  const int64_t kv_head = head / kSparseGroup;
  std::vector<double> value(static_cast<size_t>(tokens * s.head_dim)), out(value.size());
  std::vector<float> row(static_cast<size_t>(s.head_dim));
  for (int64_t j = 0; j < tokens; ++j) {
    s.codec.decode(s.at(s.batch.spans[0], j, kv_head, 1), row.data(), s.head_dim);
    std::copy(row.begin(), row.end(), value.begin() + j * s.head_dim);
  }
  const auto apply = [&](const std::function<double(int64_t, int64_t)>& weight, const std::vector<double>& x) {
    std::vector<double> y(x.size());
    for (int64_t i = 0; i < tokens; ++i)
      for (int64_t j = 0; j <= i; ++j)
        for (int64_t d = 0; d < s.head_dim; ++d)
          y[static_cast<size_t>(i * s.head_dim + d)] += weight(i, j) * x[static_cast<size_t>(j * s.head_dim + d)];
    return y;
  };
  const auto own = [&](int64_t i, int64_t j) {
    return weights[static_cast<size_t>(head)][static_cast<size_t>(i * tokens + j)];
  };
  const auto mean = [&](int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t g = 0; g < kSparseGroup; ++g)
      sum += weights[static_cast<size_t>(kv_head * kSparseGroup + g)][static_cast<size_t>(i * tokens + j)];
    return sum / kSparseGroup;
  };
  for (int64_t hop = 1; hop <= hops; ++hop) {
    const double theta = std::pow(1 - alpha, hop - 1) * (hop < hops ? alpha : 1);
    const auto reached = apply(own, value);
    for (size_t i = 0; i < out.size(); ++i) out[i] += theta * reached[i];
    value = apply(mean, value);
  }
  return out;
}

TEST(HopValues, AreSumsOfPowersOfTheWeights) {
  constexpr int64_t kTokens = 140;
  for (const auto& [hops, alpha] : {std::pair<int64_t, double>{2, 0.6}, {4, 0.3}}) {
    SCOPED_TRACE(hops);
    const auto pattern = pattern_from("diffuser:block=16,window=2,global=1,random=1,hops=" + std::to_string(hops) +
                                      ",alpha=" + std::to_string(alpha));
    SparseStreams s(testing::attention_tables().back(), *find_format("f32"), kDim, 16, 0, pattern.get());
    s.add(kTokens, kTokens, 1);
    const auto q = s.queries();
    const auto actual = run_chunk(s, *pattern, s.batch.spans[0], 0, kTokens, q, 2);
    const auto weights = weights_of(s, *pattern, kTokens, q);
    for (int64_t h : {0, 1, 4}) {
      const auto expected = power_sum(s, weights, kTokens, h, hops, alpha);
      for (int64_t i = 0; i < kTokens; ++i)
        for (int64_t d = 0; d < kDim; ++d)
          ASSERT_NEAR(actual[static_cast<size_t>((i * kSparseHeads + h) * kDim + d)],
                      expected[static_cast<size_t>(i * kDim + d)], 1e-4)
              << "head " << h << " token " << i << " dim " << d;
    }
  }
}

// So a token that the query does not see reaches it by way of one that it sees.
TEST(HopValues, ReachWhatNoSingleHopDoes) {
  const auto reaches = [](const std::string& hops) {
    const auto pattern = pattern_from("diffuser:block=16,window=2,global=0,random=0,alpha=0.5,hops=" + hops);
    SparseStreams s(testing::attention_tables().back(), *find_format("f32"), kDim, 16, 0, pattern.get());
    s.add(128, 128, 1);
    const auto q = s.queries();
    const auto before = run_chunk(s, *pattern, s.batch.spans[0], 0, 128, q, 1);
    const std::vector<float> other(kDim, 3.0f);
    s.codec.encode(other.data(), s.at(s.batch.spans[0], 5, 0, 1), kDim);
    const auto after = run_chunk(s, *pattern, s.batch.spans[0], 0, 128, q, 1);
    int64_t last = -1;  // block that shows the change
    for (int64_t i = 0; i < 128; ++i)
      if (!std::equal(after.begin() + i * kSparseHeads * kDim, after.begin() + (i + 1) * kSparseHeads * kDim,
                      before.begin() + i * kSparseHeads * kDim))
        last = i / 16;
    return last;
  };
  EXPECT_EQ(reaches("2"), 2);
  EXPECT_EQ(reaches("3"), 3);
  EXPECT_EQ(reaches("5"), 5);
}

TEST(HopValues, WithoutOthersValuesTheyHaveTheBitsOfTheGraph) {
  for (const KernelTable& table : testing::attention_tables())
    for (const char* format : {"f32", "f16", "bf16"}) {
      SCOPED_TRACE(isa_name(table.isa) + " " + format);
      const std::string graph = "block=16,window=2,global=1,random=2,seed=3";
      const auto pattern = pattern_from("diffuser:hops=3,alpha=1," + graph), plain = pattern_from("bigbird:" + graph);
      SparseStreams s(table, *find_format(format), 64, 16, 0, pattern.get());
      s.add(300, 300, 1);
      const auto expected = s.run(plain.get());
      EXPECT_TRUE(testing::same_bits(run_chunk(s, *pattern, s.batch.spans[0], 0, 300, s.queries(), 2), expected));
    }
}

TEST(HopValues, BitsDoNotDependOnChunksAndThreads) {
  for (const KernelTable& table : testing::attention_tables())
    for (const char* format : {"f16", "q8_0"}) {
      SCOPED_TRACE(isa_name(table.isa) + " " + format);
      const auto pattern = pattern_from("diffuser:block=32,window=2,global=1,random=1,hops=3,alpha=0.5");
      const auto run = [&](int64_t chunk, int threads) {
        SparseStreams s(table, *find_format(format), 64, 32, 0, pattern.get());
        s.add(150, 150, 1);
        std::vector<float> out;
        const auto q = s.queries();
        for (int64_t begin = 0; begin < 150; begin += chunk) {
          const auto part =
              run_chunk(s, *pattern, s.batch.spans[0], begin, std::min<int64_t>(150, begin + chunk), q, threads);
          out.insert(out.end(), part.begin(), part.end());
        }
        return out;
      };
      const auto expected = run(150, 1);
      for (const auto& [chunk, threads] : {std::pair<int64_t, int>{150, 3}, {70, 2}, {13, 1}})
        EXPECT_TRUE(testing::same_bits(run(chunk, threads), expected)) << chunk;
    }
}

}  // namespace
}  // namespace millrace
