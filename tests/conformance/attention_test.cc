// Attention kernels of every table and KV format: against plain softmax attention in double, and against
// themselves. The bits of one query may not depend on its companions in the call, on keys it does not
// see, or on how slots are cut into blocks.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "conformance/byte_rows.h"
#include "kernel_tables.h"
#include "kernels/kernel_table.h"
#include "kernels/x86/bf16_products.h"
#include "tensor/half.h"

namespace millrace {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Keys and values of one KV head in blocks, and their decoded values.
struct Cache {
  Cache(const Format& kv_format, int64_t slot_count, int64_t dim, int64_t tokens_per_block, uint64_t seed)
      : format(kv_format), slots(slot_count), head_dim(dim), block_tokens(tokens_per_block) {
    padded = (head_dim + format.block_values - 1) / format.block_values * format.block_values;
    row_bytes = format.row_bytes(padded) + 6;  // rows of other heads may be in between
    fill(seed, k_bytes, k, k_blocks);
    fill(seed + 1, v_bytes, v, v_blocks);
  }

  void fill(uint64_t seed, std::vector<std::vector<uint8_t>>& bytes, std::vector<float>& values,
            std::vector<const uint8_t*>& blocks) {
    const int64_t count = (slots + block_tokens - 1) / block_tokens;
    bytes.assign(count, std::vector<uint8_t>(block_tokens * row_bytes, 0xff));
    values = testing::random_values(slots * padded, seed);
    for (int64_t s = 0; s < slots; ++s) {
      uint8_t* row = bytes[s / block_tokens].data() + s % block_tokens * row_bytes;
      format.encode(values.data() + s * padded, row, padded);
      format.decode(row, values.data() + s * padded, padded);
    }
    for (auto& block : bytes) blocks.push_back(block.data());
  }

  // After a copy: the tables must name this cache's blocks.
  void point_at_own_blocks() {
    for (size_t b = 0; b < k_bytes.size(); ++b) {
      k_blocks[b] = k_bytes[b].data();
      v_blocks[b] = v_bytes[b].data();
    }
  }

  // Overwrites every slot from `slot` on with bytes that decode to NaN or nonsense.
  void poison_from(int64_t slot) {
    for (int64_t s = slot; s < slots; ++s) poison(s);
  }
  void poison(int64_t s) {
    std::memset(k_bytes[s / block_tokens].data() + s % block_tokens * row_bytes, 0xff, row_bytes);
    std::memset(v_bytes[s / block_tokens].data() + s % block_tokens * row_bytes, 0xff, row_bytes);
  }

  const Format& format;
  int64_t slots, head_dim, block_tokens, padded = 0, row_bytes = 0;
  std::vector<std::vector<uint8_t>> k_bytes, v_bytes;
  std::vector<const uint8_t*> k_blocks, v_blocks;
  std::vector<float> k, v;  // [slots, padded]
};

struct GenerationRequest {
  int64_t group = 1;
  int64_t first_query = 0;
  int64_t queries = 1;
  int64_t window = 0;
  float softcap = 0;
  bool unify = false;
  float unified_max = 0;
};

struct RowsPartial {
  std::vector<float> max, sum, acc;
  std::vector<float> top = {};
  bool operator==(const RowsPartial& other) const {
    return testing::same_bits(max, other.max) && testing::same_bits(sum, other.sum) &&
           testing::same_bits(acc, other.acc) && testing::same_bits(top, other.top);
  }
};

// q: [slots, group * head_dim + 3], one row per slot, so that any query can be computed alone.
RowsPartial run_partition(const AttentionKernel& kernel, const Cache& cache, const std::vector<float>& q,
                          const GenerationRequest& ask, int64_t key_begin, int64_t key_end) {
  const int64_t rows = ask.queries * ask.group;
  RowsPartial out{std::vector<float>(rows, NAN), std::vector<float>(rows, NAN),
                  std::vector<float>(rows * cache.head_dim, NAN), std::vector<float>(ask.unify ? 0 : rows, NAN)};
  AttentionArgs a;
  a.q_stride = ask.group * cache.head_dim + 3;
  a.q = q.data() + ask.first_query * a.q_stride;
  a.queries = ask.queries;
  a.group = ask.group;
  a.head_dim = cache.head_dim;
  a.first_query = ask.first_query;
  a.key_begin = key_begin;
  a.key_end = key_end;
  a.window = ask.window;
  a.softcap = ask.softcap;
  a.unify = ask.unify;
  a.unified_max = ask.unified_max;
  a.k_blocks = cache.k_blocks.data();
  a.v_blocks = cache.v_blocks.data();
  a.block_tokens = cache.block_tokens;
  a.row_bytes = cache.row_bytes;
  a.max = out.max.data();
  a.sum = out.sum.data();
  a.acc = out.acc.data();
  a.top = ask.unify ? nullptr : out.top.data();
  kernel.run(a);
  return out;
}

// Every partition up to the last query's slot, merged: [queries * group, head_dim].
std::vector<float> attend(const KernelTable& table, const AttentionKernel& kernel, const Cache& cache,
                          const std::vector<float>& q, const GenerationRequest& ask, const float* sink = nullptr) {
  const int64_t end = ask.first_query + ask.queries;
  const int64_t rows = ask.queries * ask.group;
  RowsPartial all;
  int64_t partials = 0;
  for (int64_t begin = 0; begin < end; begin += kAttentionPartition, ++partials) {
    RowsPartial p = run_partition(kernel, cache, q, ask, begin, std::min(end, begin + kAttentionPartition));
    all.max.insert(all.max.end(), p.max.begin(), p.max.end());
    all.sum.insert(all.sum.end(), p.sum.begin(), p.sum.end());
    all.acc.insert(all.acc.end(), p.acc.begin(), p.acc.end());
  }
  std::vector<float> out(rows * cache.head_dim, NAN);
  table.attention_merge(partials, rows, ask.group, cache.head_dim, all.max.data(), all.sum.data(), all.acc.data(), sink,
                        out.data());
  return out;
}

// The result by definition, and how much an output may differ from it because a weight is so close to the midpoint of
// two bf16 numbers that it may be rounded either way: zero where weights are not rounded.
struct Expected {
  std::vector<float> out;
  std::vector<double> either_side;
};

float as_bf16(double x) { return bf16_to_f32(f32_to_bf16(static_cast<float>(x))); }

// Whether 2^(x (1 +- 2e-5)) may round to two bf16 numbers; a kernel's weight before rounding is that close.
bool rounds_either_way(double weight) { return as_bf16(weight * (1 - 2e-5)) != as_bf16(weight * (1 + 2e-5)); }

bool multiplies_bytes(const KernelTable& table, const AttentionKernel& kernel) {
  return testing::multiplies_bytes(table, *kernel.kv_format);
}

// How a kernel that multiplies bytes rounds a factor: whole numbers of 16 bits under the largest of them.
struct WholeFactors {
  explicit WholeFactors(float most) : unit(most / 32512), inverse(most == 0 ? 0 : 32512 / most) {}
  double of(float x) const { return std::nearbyint(x * inverse) * double{unit}; }
  float unit, inverse;
};

// The largest of the first `n` numbers.
float largest_of(const float* x, int64_t n) {
  float most = 0;
  for (int64_t i = 0; i < n; ++i) most = std::max(most, std::fabs(x[i]));
  return most;
}

// What weights count for the values of a block of 32 dims, of which `d` is one: of strips of 64 slots, weights times
// scales are whole numbers. `slack`: how much the sum may differ because whole numbers may, where a weight may be
// rounded either way. weights: of the slots from `begin` on.
double sum_of_byte_values(const Cache& cache, int64_t begin, const std::vector<double>& weights,
                          const std::vector<double>& doubt, int64_t d, double& slack) {
  const bool has_minimum = cache.format.name == std::string_view("q4_1");
  const auto half_at = [&](int64_t slot, int64_t at) {
    uint16_t bits;
    const auto& block = cache.v_bytes[static_cast<size_t>(slot / cache.block_tokens)];
    const int64_t block_bytes = cache.format.row_bytes(32);
    std::memcpy(&bits, block.data() + slot % cache.block_tokens * cache.row_bytes + d / 32 * block_bytes + at, 2);
    return f16_to_f32(bits);
  };
  double sum = 0;
  const auto end = begin + std::ssize(weights);
  for (int64_t first = begin; first < end;) {
    const int64_t last = std::min<int64_t>(end, (first / 64 + 1) * 64);
    float most = 0;
    bool unsure = false;
    for (int64_t s = first; s < last; ++s)
      most = std::max(most, std::fabs(static_cast<float>(weights[s - begin]) * half_at(s, 0)));
    const WholeFactors factors(most);
    double levels = 0;
    for (int64_t s = first; s < last; ++s) {
      const float scale = half_at(s, 0), minimum = has_minimum ? half_at(s, 2) : 0;
      const float factor = static_cast<float>(weights[s - begin]) * scale;
      unsure = unsure || (doubt[s - begin] > 0 && std::fabs(factor) > 0.98f * most);
      const double level = scale == 0 ? 0 : (double{cache.v[s * cache.padded + d]} - minimum) / scale;
      sum += factors.of(factor) * level + weights[s - begin] * minimum;
      levels += std::fabs(level);
      if (doubt[s - begin] > 0) slack += std::fabs(level) * factors.unit;
    }
    if (unsure) slack += levels * factors.unit;
    first = last;
  }
  return sum;
}

// The definition: softmax over every visible key at once, in double. Where the kernel multiplies in bf16, queries, keys
// and values are rounded, and so are the weights, as 2^(score log2(e) - an integer). Where it multiplies bytes, only
// weights are, and queries and weights times scales are whole numbers of 16 bits.
Expected plain_attention(const KernelTable& table, const AttentionKernel& kernel, const Cache& cache,
                         const std::vector<float>& q, const GenerationRequest& ask, const float* sink = nullptr) {
  Expected expected;
  const bool rounded = cache.head_dim <= kernel.bf16_head_dim, bytes = rounded && multiplies_bytes(table, kernel);
  const auto operand = [&](float x) { return double{rounded && !bytes ? as_bf16(x) : x}; };
  const int64_t stride = ask.group * cache.head_dim + 3;
  for (int64_t i = ask.first_query; i < ask.first_query + ask.queries; ++i) {
    for (int64_t g = 0; g < ask.group; ++g) {
      std::vector<double> weights;
      const int64_t begin = ask.window > 0 ? std::max<int64_t>(0, i - ask.window + 1) : 0;
      const float* const query = q.data() + i * stride + g * cache.head_dim;
      const WholeFactors factors(largest_of(query, cache.head_dim));
      double max = sink ? sink[g] : -INFINITY;
      for (int64_t s = begin; s <= i; ++s) {
        double dot = 0;
        for (int64_t d = 0; d < cache.head_dim; ++d) {
          dot += (bytes ? factors.of(query[d]) : operand(query[d])) * operand(cache.k[s * cache.padded + d]);
        }
        if (ask.softcap > 0) dot = ask.softcap * std::tanh(dot / ask.softcap);
        weights.push_back(dot);
        max = std::max(max, dot);
      }
      if (rounded) max = std::ceil(max / M_LN2) * M_LN2;
      double sum = sink ? std::exp(sink[g] - max) : 0;
      std::vector<double> doubt;
      for (double& w : weights) {
        w = std::exp(w - max);
        doubt.push_back(rounded && rounds_either_way(w) ? w / 128 : 0);
        if (rounded) w = as_bf16(w);
        sum += w;
      }
      for (int64_t d = 0; d < cache.head_dim; ++d) {
        double value = 0, either_side = 0;
        for (size_t j = 0; !bytes && j < weights.size(); ++j)
          value += weights[j] * operand(cache.v[(begin + j) * cache.padded + d]);
        if (bytes) value = sum_of_byte_values(cache, begin, weights, doubt, d, either_side);
        for (size_t j = 0; j < weights.size(); ++j) {
          either_side += doubt[j] * std::fabs(operand(cache.v[(begin + j) * cache.padded + d]) - value / sum);
        }
        expected.out.push_back(static_cast<float>(value / sum));
        expected.either_side.push_back(either_side / sum);
      }
    }
  }
  return expected;
}

// Within `bound` of the largest expected value, plus the slack for weights that may be rounded either way.
void expect_close(const std::vector<float>& actual, const Expected& expected, double bound) {
  ASSERT_EQ(actual.size(), expected.out.size());
  std::vector<float> nearest = actual;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double off = double{expected.out[i]} - actual[i];
    if (off != 0)
      nearest[i] += static_cast<float>(std::copysign(std::min(std::fabs(off), expected.either_side[i]), off));
  }
  testing::expect_close(nearest, expected.out, bound);
}

std::vector<float> queries_for(int64_t slots, int64_t group, int64_t head_dim, uint64_t seed) {
  auto q = testing::random_values(slots * (group * head_dim + 3), seed);
  for (float& x : q) x *= 1.5f / std::sqrt(static_cast<float>(head_dim));  // scores spread over some units
  return q;
}

template <typename Body>
void for_each_kernel(const Body& body) {
  for (const KernelTable& table : testing::attention_tables()) {
    for (const AttentionKernel& kernel : table.attention) {
      SCOPED_TRACE(isa_name(table.isa) + " " + std::string(kernel.kv_format->name));
      body(table, kernel);
    }
  }
}

TEST(Attention, EveryTableHasTheKvFormats) {
  for (const KernelTable& table : testing::attention_tables()) {
    for (const char* name : {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "f8_e4m3"}) {
      ASSERT_NE(find_format(name), nullptr) << name;
      EXPECT_NE(table.find_attention(find_format(name)), nullptr) << isa_name(table.isa) << " " << name;
    }
  }
}

// Bound: 4e-6 of the largest value (values are in [-2, 2], softmax weights sum to one), whatever the arithmetic:
// rounding is part of its definition; without it the error would be a thousand times as large.
// plain_attention() of a case that several tables have in common, computed once.
class PlainAttention {
 public:
  const Expected& of(int64_t number, const KernelTable& table, const AttentionKernel& kernel, const Cache& cache,
                     const std::vector<float>& q, const GenerationRequest& ask) {
    const int rounding = cache.head_dim > kernel.bf16_head_dim ? 0 : multiplies_bytes(table, kernel) ? 2 : 1;
    const Case key{kernel.kv_format->name, rounding, number};
    auto [at, fresh] = known_.try_emplace(key);
    if (fresh) at->second = plain_attention(table, kernel, cache, q, ask);
    return at->second;
  }

 private:
  using Case = std::tuple<std::string, int, int64_t>;
  std::map<Case, Expected> known_;
};

// label(arm-slow): takes up to half a minute on a simulated processor, and native runs test it
TEST(Attention, EqualsPlainSoftmaxForEveryHeadDim) {
  PlainAttention plain;
  for_each_kernel([&](const KernelTable& table, const AttentionKernel& kernel) {
    for (int64_t head_dim : {1, 7, 8, 16, 31, 33, 40, 63, 64, 65, 80, 96, 128, 200, 256, 520, 576, 600}) {
      SCOPED_TRACE(head_dim);
      Cache cache(*kernel.kv_format, 300, head_dim, 16, head_dim);
      for (int64_t group : {1, 3}) {
        auto q = queries_for(300, group, head_dim, 5);
        GenerationRequest ask{.group = group, .first_query = 281, .queries = 19};
        expect_close(attend(table, kernel, cache, q, ask), plain.of(8 * head_dim + group, table, kernel, cache, q, ask),
                     4e-6);
      }
    }
  });
}

TEST(Attention, WindowsAndSoftcapsEqualThePlainDefinition) {
  for_each_kernel([](const KernelTable& table, const AttentionKernel& kernel) {
    Cache cache(*kernel.kv_format, 600, 32, 32, 3);
    auto q = queries_for(600, 2, 32, 6);
    for (int64_t window : {0, 1, 5, 32, 33, 100, 300}) {
      for (float softcap : {0.0f, 0.7f, 30.0f}) {
        SCOPED_TRACE(window);
        SCOPED_TRACE(softcap);
        GenerationRequest ask{.group = 2, .first_query = 505, .queries = 35, .window = window, .softcap = softcap};
        expect_close(attend(table, kernel, cache, q, ask), plain_attention(table, kernel, cache, q, ask), 4e-6);
        GenerationRequest early{.group = 2, .first_query = 0, .queries = 20, .window = window, .softcap = softcap};
        expect_close(attend(table, kernel, cache, q, early), plain_attention(table, kernel, cache, q, early), 4e-6);
      }
    }
  });
}

// The promise: partial results of a query are the same bits alone and among others, whatever block_tokens
// is, however far key_end is past the keys it sees, and whatever unseen slots contain.
struct Company {
  int64_t head_dim, group, window;
  bool unify = false;
};

// Computes query `slot` alone, in a cache with another block size whose unseen slots are poisoned.
RowsPartial ask_alone(const AttentionKernel& kernel, const Cache& clean, const std::vector<float>& q, const Company& c,
                      int64_t slot, int64_t key_begin, int64_t key_end) {
  Cache alone = clean;
  alone.point_at_own_blocks();
  alone.poison_from(slot + 1);
  for (int64_t s = 0; c.window > 0 && s <= slot - c.window; ++s) alone.poison(s);
  return run_partition(kernel, alone, q,
                       {.group = c.group, .first_query = slot, .queries = 1, .window = c.window, .unify = c.unify},
                       key_begin, key_end);
}

void expect_same_bits_alone(const AttentionKernel& kernel, const Company& c) {
  SCOPED_TRACE("head_dim " + std::to_string(c.head_dim) + " group " + std::to_string(c.group) + " window " +
               std::to_string(c.window));
  const Cache together(*kernel.kv_format, 512, c.head_dim, 16, 9);
  std::vector<Cache> cuts;
  for (int64_t block_tokens : {1, 8, 16, 64, 37})
    cuts.emplace_back(*kernel.kv_format, 512, c.head_dim, block_tokens, 9);
  auto q = queries_for(512, c.group, c.head_dim, 10);
  // Of a unified maximum, some rows leave the range, above it or below.
  for (size_t i = 0; c.unify && i < q.size(); ++i) q[i] *= i / 1000 % 3 == 0 ? 120.0f : 1.0f;
  for (int64_t begin : {0, 256}) {
    const RowsPartial whole =
        run_partition(kernel, together, q,
                      {.group = c.group, .first_query = 256, .queries = 256, .window = c.window, .unify = c.unify},
                      begin, begin + 256);
    for (int64_t i = 0; i < 256; i += (i % 32 < 1 ? 1 : 15)) {
      const int64_t slot = 256 + i;
      const int64_t rows = i * c.group;
      const RowsPartial expected{
          {whole.max.begin() + rows, whole.max.begin() + rows + c.group},
          {whole.sum.begin() + rows, whole.sum.begin() + rows + c.group},
          {whole.acc.begin() + rows * c.head_dim, whole.acc.begin() + (rows + c.group) * c.head_dim},
          c.unify ? std::vector<float>{}
                  : std::vector<float>{whole.top.begin() + rows, whole.top.begin() + rows + c.group}};
      const int64_t end = i % 2 ? begin + 256 : std::min(begin + 256, slot + 1);
      ASSERT_EQ(ask_alone(kernel, cuts[static_cast<size_t>(i % 5)], q, c, slot, begin, end), expected)
          << "slot " << slot << " partition " << begin;
    }
  }
}

// label(arm-slow): takes up to half a minute on a simulated processor, and native runs test it
TEST(Attention, AQueryHasTheSameBitsAloneAndInAnyBatch) {
  for_each_kernel([](const KernelTable& table, const AttentionKernel& kernel) {
    if (table.isa == Isa::ref) {  // one query at a time by construction, and slow
      expect_same_bits_alone(kernel, {33, 2, 45});
      return;
    }
    for (Company c : {Company{64, 1, 0}, {64, 4, 45}, {40, 2, 0}, {40, 7, 45}, {128, 7, 0}, {128, 8, 45}, {33, 3, 7}}) {
      expect_same_bits_alone(kernel, c);
    }
  });
}

TEST(Attention, AUnifiedMaximumEqualsThePlainDefinition) {
  for_each_kernel([](const KernelTable& table, const AttentionKernel& kernel) {
    Cache cache(*kernel.kv_format, 600, 40, 16, 17);
    const auto q = queries_for(600, 2, 40, 18);
    for (float max : {0.0f, 7.3f, -11.0f}) {
      SCOPED_TRACE(max);
      const GenerationRequest ask{
          .group = 2, .first_query = 505, .queries = 35, .softcap = 30, .unify = true, .unified_max = max};
      expect_close(attend(table, kernel, cache, q, ask), plain_attention(table, kernel, cache, q, ask), 4e-6);
      const RowsPartial part = run_partition(kernel, cache, q, ask, 0, 256);
      for (float relative : part.max) ASSERT_NEAR(relative, max, 0.7);  // not each row's own
    }
  });
}

TEST(Attention, RowsBeyondAUnifiedMaximumFallBackToTheirOwn) {
  for_each_kernel([](const KernelTable& table, const AttentionKernel& kernel) {
    Cache cache(*kernel.kv_format, 300, 24, 16, 19);
    auto q = queries_for(300, 3, 24, 20);
    const GenerationRequest plain{.group = 3, .first_query = 40, .queries = 200};
    for (float max : {-300.0f, -80.0f, 80.0f, 300.0f}) {
      GenerationRequest far = plain;
      far.unify = true;
      far.unified_max = max;
      RowsPartial own = run_partition(kernel, cache, q, plain, 0, 256);
      own.top.clear();
      EXPECT_EQ(run_partition(kernel, cache, q, far, 0, 256), own) << max;
    }
    GenerationRequest unseen{.group = 3, .first_query = 40, .queries = 2, .unify = true};
    EXPECT_EQ(run_partition(kernel, cache, q, unseen, 256, 300).max, std::vector<float>(6, -kInfinity));
    q[static_cast<size_t>(45 * (3 * 24 + 3))] = NAN;
    unseen.first_query = 45;
    EXPECT_TRUE(std::isnan(attend(table, kernel, cache, q, unseen)[0]));
  });
}

// label(arm-slow): takes up to half a minute on a simulated processor, and native runs test it
TEST(Attention, AUnifiedMaximumHasTheSameBitsAloneAndInAnyBatch) {
  for_each_kernel([](const KernelTable& table, const AttentionKernel& kernel) {
    if (table.isa == Isa::ref) return expect_same_bits_alone(kernel, {33, 2, 45, true});
    for (Company c : {Company{64, 1, 0, true}, {40, 7, 45, true}, {128, 8, 0, true}}) expect_same_bits_alone(kernel, c);
  });
}

TEST(Attention, AnySplitOfTheQueriesGivesTheSameBits) {
  for_each_kernel([](const KernelTable& table, const AttentionKernel& kernel) {
    Cache cache(*kernel.kv_format, 400, 24, 16, 11);
    auto q = queries_for(400, 3, 24, 12);
    const auto whole = attend(table, kernel, cache, q, {.group = 3, .first_query = 190, .queries = 210});
    for (int64_t chunk : {1, 7, 64, 100}) {
      std::vector<float> cut;
      for (int64_t i = 0; i < 210; i += chunk) {
        auto part = attend(table, kernel, cache, q,
                           {.group = 3, .first_query = 190 + i, .queries = std::min<int64_t>(chunk, 210 - i)});
        cut.insert(cut.end(), part.begin(), part.end());
      }
      EXPECT_TRUE(testing::same_bits(whole, cut)) << "chunk " << chunk;
    }
  });
}

// Of the keys of a partition that each row sees; NaN elsewhere.
std::vector<float> run_scores(const AttentionKernel& kernel, const Cache& cache, const std::vector<float>& q,
                              const GenerationRequest& ask, int64_t key_begin, int64_t key_end) {
  std::vector<float> out(static_cast<size_t>(ask.queries * ask.group * kAttentionPartition), NAN);
  AttentionArgs a;
  a.q_stride = ask.group * cache.head_dim + 3;
  a.q = q.data() + ask.first_query * a.q_stride;
  a.queries = ask.queries;
  a.group = ask.group;
  a.head_dim = cache.head_dim;
  a.first_query = ask.first_query;
  a.key_begin = key_begin;
  a.key_end = key_end;
  a.window = ask.window;
  a.softcap = ask.softcap;
  a.k_blocks = a.v_blocks = cache.k_blocks.data();
  a.block_tokens = cache.block_tokens;
  a.row_bytes = cache.row_bytes;
  a.scores = out.data();
  a.score_stride = kAttentionPartition;
  kernel.run(a);
  for (int64_t row = 0; row < ask.queries * ask.group; ++row) {
    const int64_t slot = ask.first_query + row / ask.group;
    for (int64_t s = key_begin; s < key_begin + kAttentionPartition; ++s)
      if (s > slot || s >= key_end || (ask.window > 0 && s <= slot - ask.window))
        out[static_cast<size_t>(row * kAttentionPartition + s - key_begin)] = NAN;
  }
  return out;
}

TEST(Attention, ScoresAreTheProductsAlone) {
  for_each_kernel([](const KernelTable& table, const AttentionKernel& kernel) {
    for (int64_t head_dim : {24, 64, 600}) {
      const Cache cache(*kernel.kv_format, 300, head_dim, 16, 21);
      const auto q = queries_for(300, 3, head_dim, 22);
      const bool bytes = head_dim <= kernel.bf16_head_dim && multiplies_bytes(table, kernel);
      const bool rounded = head_dim <= kernel.bf16_head_dim && !bytes;
      const auto operand = [&](float x) { return double{rounded ? as_bf16(x) : x}; };
      for (const GenerationRequest& ask :
           {GenerationRequest{.group = 3, .first_query = 290},
            {.group = 3, .first_query = 270, .queries = 30},
            {.group = 3, .first_query = 270, .queries = 9, .window = 11, .softcap = 2}}) {
        const int64_t end = ask.first_query + ask.queries, stride = 3 * head_dim + 3;
        const std::vector<float> scores = run_scores(kernel, cache, q, ask, 256, end);
        for (int64_t row = 0; row < ask.queries * 3; ++row) {
          const int64_t slot = ask.first_query + row / 3;
          const float* const query = q.data() + slot * stride + row % 3 * head_dim;
          const WholeFactors factors(largest_of(query, head_dim));
          for (int64_t s = std::max<int64_t>(256, ask.window > 0 ? slot - ask.window + 1 : 0); s <= slot; ++s) {
            double dot = 0;
            for (int64_t d = 0; d < head_dim; ++d)
              dot += (bytes ? factors.of(query[d]) : operand(query[d])) *
                     operand(cache.k[static_cast<size_t>(s * cache.padded + d)]);
            if (ask.softcap > 0) dot = ask.softcap * std::tanh(dot / ask.softcap);
            ASSERT_NEAR(scores[static_cast<size_t>(row * kAttentionPartition + s - 256)], dot, 2e-5)
                << head_dim << " row " << row << " slot " << s;
          }
        }
      }
    }
  });
}

TEST(Attention, ScoresHaveTheSameBitsAloneAndInAnyBatch) {
  for_each_kernel([](const KernelTable&, const AttentionKernel& kernel) {
    const Cache cache(*kernel.kv_format, 300, 64, 16, 23);
    const auto q = queries_for(300, 4, 64, 24);
    const auto whole = run_scores(kernel, cache, q, {.group = 4, .first_query = 200, .queries = 100}, 0, 256);
    for (int64_t i = 0; i < 100; i += 3) {
      Cache alone = cache;
      alone.point_at_own_blocks();
      alone.poison_from(201 + i);
      const auto own = run_scores(kernel, alone, q, {.group = 4, .first_query = 200 + i}, 0, 256);
      const auto begin = whole.begin() + i * 4 * kAttentionPartition;
      ASSERT_TRUE(testing::same_bits(own, std::vector<float>(begin, begin + 4 * kAttentionPartition))) << i;
    }
  });
}

// The largest score is that of the partition, which a kernel's maximum may exceed.
TEST(Attention, TheLargestScoreIsThere) {
  for (const KernelTable& table : testing::attention_tables()) {
    for (const AttentionKernel& kernel : table.attention) {
      SCOPED_TRACE(isa_name(table.isa) + " " + std::string(kernel.kv_format->name));
      const Cache cache(*kernel.kv_format, 300, 64, 16, 25);
      const auto q = queries_for(300, 2, 64, 26);
      for (const GenerationRequest& ask : {GenerationRequest{.group = 2, .first_query = 255},
                                           {.group = 2, .first_query = 200, .queries = 90, .window = 60, .softcap = 3},
                                           {.group = 2, .first_query = 256, .queries = 2, .window = 1}}) {
        const RowsPartial part = run_partition(kernel, cache, q, ask, 0, 256);
        const std::vector<float> scores = run_scores(kernel, cache, q, ask, 0, 256);
        for (size_t row = 0; row < part.top.size(); ++row) {
          float largest = -kInfinity;
          for (int64_t s = 0; s < kAttentionPartition; ++s)
            largest = std::fmax(largest, scores[row * kAttentionPartition + static_cast<size_t>(s)]);
          if (largest == -kInfinity)
            EXPECT_EQ(part.top[row], -kInfinity);
          else
            EXPECT_NEAR(part.top[row], largest, 1e-5) << row;
          EXPECT_GE(part.max[row], part.top[row] - 1e-5);
        }
      }
    }
  }
}

TEST(Attention, ARowThatSeesNoKeyIsEmpty) {
  for_each_kernel([](const KernelTable&, const AttentionKernel& kernel) {
    Cache cache(*kernel.kv_format, 600, 64, 16, 13);
    auto q = queries_for(600, 2, 64, 14);
    // Queries 250..259 against the partition from 256: the first six see nothing.
    RowsPartial p = run_partition(kernel, cache, q, {.group = 2, .first_query = 250, .queries = 10}, 256, 260);
    // A window that has left the partition behind.
    RowsPartial w =
        run_partition(kernel, cache, q, {.group = 2, .first_query = 500, .queries = 1, .window = 9}, 0, 256);
    p.max.insert(p.max.begin(), w.max.begin(), w.max.end());
    p.sum.insert(p.sum.begin(), w.sum.begin(), w.sum.end());
    p.acc.insert(p.acc.begin(), w.acc.begin(), w.acc.end());
    for (int row = 0; row < 14; ++row) {
      EXPECT_EQ(p.max[row], -kInfinity) << row;
      EXPECT_EQ(p.sum[row], 0.0f) << row;
      for (int d = 0; d < 64; ++d) EXPECT_EQ(p.acc[row * 64 + d], 0.0f) << row;
    }
    EXPECT_GT(p.sum[14], 0.0f);
    EXPECT_GT(p.max[14], -kInfinity);
  });
}

TEST(Attention, OneVisibleKeyGivesItsValueExactly) {
  for_each_kernel([](const KernelTable& table, const AttentionKernel& kernel) {
    Cache cache(*kernel.kv_format, 4, 64, 16, 15);
    auto q = queries_for(4, 1, 64, 16);
    const GenerationRequest ask{.first_query = 3, .queries = 1, .window = 1};
    auto out = attend(table, kernel, cache, q, ask);
    if (multiplies_bytes(table, kernel))  // the scale is rounded to 16 bits
      return expect_close(out, plain_attention(table, kernel, cache, q, ask), 4e-7);
    for (int d = 0; d < 64; ++d) {
      const float value = cache.v[3 * cache.padded + d];
      EXPECT_EQ(out[d], kernel.bf16_head_dim >= 64 ? as_bf16(value) : value);
    }
  });
}

// FP8 has a NaN, but rounding to it clamps.
bool keeps_nan(const Format& format) {
  if (format.block_values != 1) return false;
  uint8_t stored[4];
  float value = NAN;
  format.encode(&value, stored, 1);
  format.decode(stored, &value, 1);
  return std::isnan(value);
}

// A value may overflow its format. Rows that do not see it keep their bits, even in the same tile.
TEST(Attention, AValueThatIsNotFiniteReachesOnlyRowsThatSeeIt) {
  for_each_kernel([](const KernelTable&, const AttentionKernel& kernel) {
    Cache clean(*kernel.kv_format, 512, 64, 16, 24);
    Cache spoilt = clean;
    spoilt.point_at_own_blocks();
    spoilt.poison(301);
    auto q = queries_for(512, 2, 64, 25);
    const GenerationRequest ask{.group = 2, .first_query = 290, .queries = 20};
    const RowsPartial before = run_partition(kernel, clean, q, ask, 256, 310);
    const RowsPartial after = run_partition(kernel, spoilt, q, ask, 256, 310);
    for (int64_t i = 0; i < 20 * 2 * 64; ++i) {
      if (290 + i / 128 < 301) {
        ASSERT_EQ(after.acc[i], before.acc[i]) << i;
      } else if (keeps_nan(*kernel.kv_format)) {
        ASSERT_TRUE(std::isnan(after.acc[i])) << i;
      }
    }
  });
}

TEST(Attention, HugeScoresStayFinite) {
  for_each_kernel([](const KernelTable& table, const AttentionKernel& kernel) {
    Cache cache(*kernel.kv_format, 100, 64, 16, 17);
    auto q = queries_for(100, 1, 64, 18);
    for (float& x : q) x *= 1e4f;
    GenerationRequest ask{.first_query = 60, .queries = 40};
    expect_close(attend(table, kernel, cache, q, ask), plain_attention(table, kernel, cache, q, ask), 1e-2);
  });
}

// Values of every size, subnormal ones among them, and weights down to the smallest.
TEST(Attention, EitherInstructionForBf16GivesTheSameBits) {
#if defined(__x86_64__)
  const bool usual = bf16_by_fma();
  int64_t kernels = 0;
  for_each_kernel([&](const KernelTable& table, const AttentionKernel& kernel) {
    if (!table.isa.has(Feature::avx512_bf16)) return;
    ++kernels;
    for (const int64_t dim : {32, 80, 128, 288})
      for (const float key_size : {1.0f, 40.0f})
        for (const float value_size : {1.0f, 1e-37f}) {
          Cache cache(*kernel.kv_format, 256, dim, 16, 5);
          for (int64_t s = 0; s < cache.slots; ++s) {
            for (float* x = cache.v.data() + s * cache.padded; x < cache.v.data() + (s + 1) * cache.padded; ++x)
              *x *= s % 3 == 0 ? value_size : 1;
            cache.format.encode(cache.v.data() + s * cache.padded,
                                cache.v_bytes[s / 16].data() + s % 16 * cache.row_bytes, cache.padded);
          }
          for (const GenerationRequest ask :
               {GenerationRequest{.group = 1, .first_query = 255}, GenerationRequest{.group = 4, .first_query = 255},
                GenerationRequest{.group = 7, .first_query = 255},
                GenerationRequest{.group = 3, .first_query = 201, .queries = 37},
                GenerationRequest{.group = 1, .first_query = 9, .queries = 90, .window = 50}}) {
            SCOPED_TRACE(std::to_string(dim) + " dims, group " + std::to_string(ask.group));
            auto q = queries_for(256, ask.group, dim, 3);
            for (float& x : q) x *= key_size;
            const int64_t end = ask.first_query + ask.queries;
            set_bf16_by_fma(false);
            const RowsPartial dots = run_partition(kernel, cache, q, ask, 0, end);
            set_bf16_by_fma(true);
            EXPECT_EQ(run_partition(kernel, cache, q, ask, 0, end), dots);
          }
        }
  });
  set_bf16_by_fma(usual);
  if (kernels == 0) GTEST_SKIP() << "this processor has no bf16 products";
#else
  GTEST_SKIP() << "only x86 has two instructions for bf16";
#endif
}

TEST(AttentionMerge, OnePartialAloneIsItsQuotient) {
  for (const KernelTable& table : testing::attention_tables()) {
    for (int64_t head_dim : {1, 7, 16, 65, 128}) {
      auto acc = testing::random_values(6 * head_dim, 20);
      std::vector<float> max = {3, -kInfinity, -70, 1e30f, 0, 0.1f};
      std::vector<float> sum = {1.5f, 0, 17, 3, 250, 1};
      std::vector<float> out(6 * head_dim, NAN);
      table.attention_merge(1, 6, 3, head_dim, max.data(), sum.data(), acc.data(), nullptr, out.data());
      for (int64_t i = 0; i < 6 * head_dim; ++i) {
        const float expected = sum[i / head_dim] == 0 ? 0.0f : acc[i] / sum[i / head_dim];
        EXPECT_EQ(out[i], expected) << isa_name(table.isa) << " " << head_dim << " " << i;
      }
    }
  }
}

TEST(AttentionMerge, EmptyPartialsChangeNothing) {
  for (const KernelTable& table : testing::attention_tables()) {
    const int64_t dim = 40;
    auto acc = testing::random_values(2 * 2 * dim, 21);
    std::vector<float> max = {1, 2, 1.5f, -4}, sum = {3, 4, 5, 6};
    std::vector<float> plain(2 * dim), padded(2 * dim);
    table.attention_merge(2, 2, 2, dim, max.data(), sum.data(), acc.data(), nullptr, plain.data());
    std::vector<float> max2, sum2, acc2;
    for (int p = 0; p < 2; ++p) {  // an empty partial before each, its acc nonsense
      max2.insert(max2.end(), {-kInfinity, -kInfinity, max[2 * p], max[2 * p + 1]});
      sum2.insert(sum2.end(), {0, 0, sum[2 * p], sum[2 * p + 1]});
      acc2.insert(acc2.end(), 2 * dim, NAN);
      acc2.insert(acc2.end(), acc.begin() + p * 2 * dim, acc.begin() + (p + 1) * 2 * dim);
    }
    table.attention_merge(4, 2, 2, dim, max2.data(), sum2.data(), acc2.data(), nullptr, padded.data());
    EXPECT_TRUE(testing::same_bits(plain, padded)) << isa_name(table.isa);
  }
}

TEST(AttentionMerge, SinksTakeTheirShareOfTheSoftmax) {
  for_each_kernel([](const KernelTable& table, const AttentionKernel& kernel) {
    Cache cache(*kernel.kv_format, 600, 64, 16, 22);
    auto q = queries_for(600, 4, 64, 23);
    const float sinks[] = {0, 9, -3, 40};
    GenerationRequest ask{.group = 4, .first_query = 590, .queries = 10};
    expect_close(attend(table, kernel, cache, q, ask, sinks), plain_attention(table, kernel, cache, q, ask, sinks),
                 4e-6);
  });
}

}  // namespace
}  // namespace millrace
