// Attention over keys and values in different formats, of every table: each kernel of a pair, and the kernel of any
// formats, against softmax attention in double; and against itself, alone and among other queries.
#include <gtest/gtest.h>

#include <cmath>

#include "kernel_tables.h"
#include "kernels/kernel_table.h"
#include "kv/row_residuals.h"
#include "tensor/half.h"

namespace millrace {
namespace {

constexpr int64_t kSlots = 300, kBlockTokens = 16;

// Rows of one head, and what they decode to.
struct PairRows {
  PairRows(const Format& row_format, int64_t head_dim, uint64_t seed) : format(row_format), dim(head_dim) {
    row_bytes = format.row_bytes(dim) + 4;
    bytes.assign(static_cast<size_t>(kSlots * row_bytes), 0xff);
    values = testing::random_values(kSlots * dim, seed);
    for (int64_t s = 0; s < kSlots; ++s) {
      format.encode(values.data() + s * dim, bytes.data() + s * row_bytes, dim);
      format.decode(bytes.data() + s * row_bytes, values.data() + s * dim, dim);
    }
    for (int64_t s = 0; s < kSlots; s += kBlockTokens) blocks.push_back(bytes.data() + s * row_bytes);
  }
  const Format& format;
  int64_t dim, row_bytes = 0;
  std::vector<uint8_t> bytes;
  std::vector<float> values;
  std::vector<const uint8_t*> blocks;
};

struct PairCall {
  int64_t group = 1, first = 0, queries = 1, window = 0;
};

std::vector<float> attend_mixed(const KernelTable& table, const AttentionKernel& kernel, const PairRows& keys,
                                const PairRows& values, const std::vector<float>& q, const PairCall& call,
                                int64_t residual_offset = 0) {
  const int64_t rows = call.queries * call.group, dim = keys.dim, end = call.first + call.queries;
  std::vector<float> max, sum, acc;
  int64_t partials = 0;
  for (int64_t begin = 0; begin < end; begin += kAttentionPartition, ++partials) {
    max.resize(max.size() + static_cast<size_t>(rows));
    sum.resize(max.size());
    acc.resize(max.size() * static_cast<size_t>(dim));
    AttentionArgs a{.q = q.data() + call.first * call.group * dim, .q_stride = call.group * dim};
    a.queries = call.queries;
    a.group = call.group;
    a.head_dim = dim;
    a.first_query = call.first;
    a.key_begin = begin;
    a.key_end = std::min(end, begin + kAttentionPartition);
    a.key_ahead = a.key_end;
    a.window = call.window;
    a.k_blocks = keys.blocks.data();
    a.v_blocks = values.blocks.data();
    a.block_tokens = kBlockTokens;
    a.row_bytes = keys.row_bytes;
    a.value_row_bytes = values.row_bytes;
    a.decode_key = table.find_codec(&keys.format)->decode;
    a.decode_value = table.find_codec(&values.format)->decode;
    a.residual_offset = residual_offset;
    a.max = max.data() + partials * rows;
    a.sum = sum.data() + partials * rows;
    a.acc = acc.data() + partials * rows * dim;
    kernel.run(a);
  }
  std::vector<float> out(static_cast<size_t>(rows * dim));
  table.attention_merge(partials, rows, call.group, dim, max.data(), sum.data(), acc.data(), nullptr, out.data());
  return out;
}

float bf16_of(double x) { return bf16_to_f32(f32_to_bf16(static_cast<float>(x))); }

// Which factors a kernel rounds to bf16: queries and keys, and values. Weights are rounded, too, within the test's
// bound.
struct Rounded {
  bool keys = false, values = false;
};

// Rows of levels are multiplied as bytes where the processor can; with tiles of AMX those of q8_0 beside f16 are not.
Rounded rounds(const KernelTable& table, const AttentionKernel& kernel, const PairRows& keys, const PairRows& values) {
  if (keys.dim > kernel.bf16_head_dim) return {};
  const bool tiles = table.isa.has(Feature::amx_bf16) &&
                     (keys.format.name == std::string_view("f16") || values.format.name == std::string_view("f16"));
  const auto is_bytes = [&](const Format& format) {
    const std::string_view name = format.name;
    if (name == "q8_0" && tiles) return false;
    return table.isa.has(Feature::avx512_vnni) &&
           (name == "q8_0" || name == "q4_0" || name == "q4_1" || name == "q5_0");
  };
  return {!is_bytes(keys.format), !is_bytes(values.format)};
}

std::vector<float> plain_mixed(Rounded rounded, const PairRows& keys, const PairRows& values,
                               const std::vector<float>& q, const PairCall& call) {
  const auto key_factor = [&](float x) { return double{rounded.keys ? bf16_of(x) : x}; };
  const auto value_factor = [&](float x) { return double{rounded.values ? bf16_of(x) : x}; };
  std::vector<float> out;
  for (int64_t i = call.first; i < call.first + call.queries; ++i) {
    for (int64_t g = 0; g < call.group; ++g) {
      const int64_t begin = call.window > 0 ? std::max<int64_t>(0, i - call.window + 1) : 0;
      std::vector<double> weights;
      double max = -INFINITY, sum = 0;
      for (int64_t s = begin; s <= i; ++s) {
        double dot = 0;
        for (int64_t d = 0; d < keys.dim; ++d)
          dot += key_factor(q[static_cast<size_t>((i * call.group + g) * keys.dim + d)]) *
                 key_factor(keys.values[static_cast<size_t>(s * keys.dim + d)]);
        weights.push_back(dot);
        max = std::max(max, dot);
      }
      for (double& weight : weights) sum += weight = std::exp(weight - max);
      for (int64_t d = 0; d < keys.dim; ++d) {
        double value = 0;
        for (size_t j = 0; j < weights.size(); ++j)
          value +=
              weights[j] * value_factor(values.values[(static_cast<size_t>(begin) + j) * static_cast<size_t>(keys.dim) +
                                                      static_cast<size_t>(d)]);
        out.push_back(static_cast<float>(value / sum));
      }
    }
  }
  return out;
}

void check_pair(const KernelTable& table, const AttentionKernel& kernel, const char* keys_name, const char* values_name,
                const std::vector<int64_t>& dims = {32, 96, 256, 544}) {
  for (const int64_t dim : dims) {
    SCOPED_TRACE(std::string(isa_name(table.isa)) + " keys " + keys_name + " values " + values_name + " dim " +
                 std::to_string(dim));
    const PairRows keys(*find_format(keys_name), dim, 1), values(*find_format(values_name), dim, 2);
    for (const int64_t group : {1, 3}) {
      auto q = testing::random_values(kSlots * group * dim, 3);
      for (float& x : q) x *= 1.5f / std::sqrt(static_cast<float>(dim));
      const Rounded rounded = rounds(table, kernel, keys, values);
      for (const int64_t window : {0, 70}) {
        const PairCall call{group, 253, 9, window};
        const auto out = attend_mixed(table, kernel, keys, values, q, call);
        testing::expect_close(out, plain_mixed(rounded, keys, values, q, call),
                              dim <= kernel.bf16_head_dim ? 4e-3 : 4e-6);
        for (const int64_t one : {0, 3, 8}) {
          const auto alone = attend_mixed(table, kernel, keys, values, q, {group, call.first + one, 1, window});
          const auto begin = out.begin() + one * group * dim;
          EXPECT_TRUE(testing::same_bits(alone, std::vector<float>(begin, begin + group * dim))) << one;
        }
      }
    }
  }
}

// label(arm-slow): takes up to half a minute on a simulated processor, and native runs test it
TEST(MixedAttention, EqualsPlainSoftmax) {
  for (const KernelTable& table : testing::attention_tables())
    for (const char* keys : {"f32", "f16", "bf16", "q8_0"})
      for (const char* values : {"f32", "f16", "bf16", "q8_0"}) {
        const AttentionKernel& found = *table.find_attention(find_format(keys), find_format(values));
        if (std::string_view(keys) == values) {
          EXPECT_EQ(&found, table.find_attention(find_format(keys)));
          continue;
        }
        check_pair(table, found, keys, values);
        if (found.kv_format) check_pair(table, table.any_attention, keys, values);
      }
}

TEST(MixedAttention, RowsOfLevelsMixWithAll) {
  const char* const formats[] = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "f8_e4m3"};
  for (const KernelTable& table : testing::attention_tables())
    for (int64_t i = 0; i < 4; ++i)
      for (int64_t j = 0; j < 8; ++j) {
        const char *levels = formats[4 + i], *other = formats[j];
        if (levels == other) continue;
        const auto find = [&](const char* keys, const char* values) {
          return table.find_attention(find_format(keys), find_format(values));
        };
        check_pair(table, *find(levels, other), levels, other, {96});
        check_pair(table, *find(other, levels), other, levels, {96});
      }
}

// Formats that have no kernel of their own.
TEST(MixedAttention, TheKernelOfAnyFormatsReadsWhatACodecDecodes) {
  for (const KernelTable& table : testing::attention_tables()) check_pair(table, table.any_attention, "q4_0", "q5_1");
}

// A row and its residual are the row of f32 that is their sum.
TEST(MixedAttention, RestsAreAddedToTheirRows) {
  for (const KernelTable& table : testing::attention_tables()) {
    for (const char* name : {"q4_0", "q4_1", "q5_0", "q8_0", "f8_e4m3"}) {
      const Format& format = *find_format(name);
      for (const int64_t dim : {32, 96, 544}) {
        if (dim == 544 && format.name != std::string_view("q4_0")) continue;  // takes long
        SCOPED_TRACE(isa_name(table.isa) + " " + name + " dim " + std::to_string(dim));
        PairRows keys(format, dim, 4), values(format, dim, 5);
        PairRows whole_keys(*find_format("f32"), dim, 6), whole_values(*find_format("f32"), dim, 7);
        const int64_t residual_offset = kSlots * keys.row_bytes;
        const auto add_rests = [&](PairRows& rows, PairRows& sums, uint64_t seed) {
          const RowCodec& codec = *table.find_codec(&format);
          const auto exact = testing::random_values(kSlots * dim, seed);
          rows.bytes.resize(static_cast<size_t>(2 * residual_offset));
          rows.blocks.clear();
          for (int64_t s = 0; s < kSlots; s += kBlockTokens)
            rows.blocks.push_back(rows.bytes.data() + s * rows.row_bytes);
          for (int64_t s = 0; s < kSlots; ++s) {
            uint8_t* row = rows.bytes.data() + s * rows.row_bytes;
            encode_with_residual(codec, exact.data() + s * dim, residual_offset, dim, row);
            auto* sum = reinterpret_cast<float*>(sums.bytes.data() + s * sums.row_bytes);
            decode_with_residual(codec, row, residual_offset, dim, sum);
            for (int64_t d = 0; d < dim; ++d) ASSERT_NEAR(sum[d], exact[static_cast<size_t>(s * dim + d)], 0.04);
          }
        };
        add_rests(keys, whole_keys, 8);
        add_rests(values, whole_values, 9);
        const auto q = testing::random_values(kSlots * 2 * dim, 10);
        const AttentionKernel& f32 = *table.find_attention(find_format("f32"));
        for (const PairCall& call : {PairCall{2, 253, 9, 70}, PairCall{2, 280, 1, 0}, PairCall{2, 240, 30, 0}}) {
          const auto expected = attend_mixed(table, f32, whole_keys, whole_values, q, call);
          for (const AttentionKernel* kernel : {table.find_attention(&format), &table.any_attention}) {
            EXPECT_TRUE(
                testing::same_bits(attend_mixed(table, *kernel, keys, values, q, call, residual_offset), expected));
            EXPECT_FALSE(testing::same_bits(attend_mixed(table, *kernel, keys, values, q, call), expected));
          }
        }
      }
    }
  }
}

TEST(MixedAttention, FastPairsAreThere) {
  for (const KernelTable& table : testing::attention_tables()) {
    const Format *f16 = find_format("f16"), *q8 = find_format("q8_0");
    const bool fast = table.isa != Isa::ref;
    EXPECT_EQ(table.find_attention(q8, f16)->kv_format == q8, fast);
    EXPECT_EQ(table.find_attention(f16, find_format("q4_0"))->kv_format == f16, fast);
    EXPECT_EQ(table.find_attention(q8, find_format("q5_0"))->kv_format == q8, fast);
    EXPECT_EQ(table.find_attention(find_format("q5_1"), q8)->kv_format, nullptr);
  }
}

}  // namespace
}  // namespace millrace
