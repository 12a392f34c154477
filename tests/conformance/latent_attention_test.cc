// Attention whose values are the first numbers of their keys: the bits of the same kernel with the values stored
// separately, for every table, KV format, number of heads and queries.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "formats/format.h"
#include "kernel_tables.h"
#include "kernels/kernel_table.h"

namespace millrace {
namespace {

struct LatentKeys {
  int64_t slots, dims, block_tokens = 16, row_bytes;
  std::vector<uint8_t> bytes;
  std::vector<const uint8_t*> blocks;

  LatentKeys(const Format& format, int64_t slot_count, int64_t key_dims)
      : slots(slot_count), dims(key_dims), row_bytes(format.row_bytes(key_dims)) {
    const std::vector<float> values = testing::random_values(slots * dims, 31);
    bytes.resize(static_cast<size_t>((slots + block_tokens) * row_bytes));
    format.encode(values.data(), bytes.data(), slots * dims);
    for (int64_t slot = 0; slot < slots; slot += block_tokens) blocks.push_back(bytes.data() + slot * row_bytes);
  }
};

struct LatentSums {
  std::vector<float> max, sum, acc;
};

LatentSums run(const AttentionKernel& kernel, const LatentKeys& keys, const std::vector<float>& q, int64_t group,
               int64_t queries, int64_t value_dim, const std::vector<const uint8_t*>& values) {
  const auto rows = static_cast<size_t>(group * queries);
  const auto dims = static_cast<size_t>(value_dim > 0 ? value_dim : keys.dims);
  LatentSums out{std::vector<float>(rows, NAN), std::vector<float>(rows, NAN), std::vector<float>(rows * dims, NAN)};
  AttentionArgs a;
  a.q = q.data();
  a.q_stride = group * keys.dims;
  a.queries = queries;
  a.group = group;
  a.head_dim = keys.dims;
  a.value_dim = value_dim;
  a.first_query = keys.slots - queries;
  a.key_end = a.key_ahead = keys.slots;
  a.k_blocks = keys.blocks.data();
  a.v_blocks = values.data();
  a.block_tokens = keys.block_tokens;
  a.row_bytes = keys.row_bytes;
  a.cold = true;
  a.max = out.max.data();
  a.sum = out.sum.data();
  a.acc = out.acc.data();
  kernel.run(a);
  return out;
}

struct LatentShape {
  int64_t dims, value_dim;
};

// label(arm-slow): takes up to half a minute on a simulated processor, and native runs test it
TEST(LatentAttention, HasTheBitsOfSeparateValues) {
  for (const KernelTable& table : testing::attention_tables())
    for (const AttentionKernel& kernel : table.attention)
      for (const LatentShape shape : {LatentShape{576, 512}, {64, 48}, {96, 40}, {64, 64}, {640, 512}}) {
        if (shape.dims % kernel.kv_format->block_values != 0) continue;
        SCOPED_TRACE(std::string(isa_name(table.isa)) + " " + std::string(kernel.kv_format->name) + " " +
                     std::to_string(shape.dims));
        const LatentKeys keys(*kernel.kv_format, 200, shape.dims);
        const std::vector<uint8_t> copy = keys.bytes;
        std::vector<const uint8_t*> values;
        for (const uint8_t* block : keys.blocks) values.push_back(copy.data() + (block - keys.bytes.data()));
        for (const auto& [group, queries] : {std::pair<int64_t, int64_t>{1, 1}, {4, 1}, {16, 1}, {16, 3}, {3, 9}}) {
          std::vector<float> q = testing::random_values(group * queries * shape.dims, 32);
          for (float& x : q) x /= std::sqrt(static_cast<float>(shape.dims));
          const LatentSums whole = run(kernel, keys, q, group, queries, 0, values);
          const LatentSums own = run(kernel, keys, q, group, queries, shape.value_dim, values);
          const LatentSums view = run(kernel, keys, q, group, queries, shape.value_dim, keys.blocks);
          EXPECT_TRUE(testing::same_bits(own.acc, view.acc));
          EXPECT_TRUE(testing::same_bits(whole.max, view.max) && testing::same_bits(whole.sum, view.sum));
          for (int64_t row = 0; row < group * queries; ++row)
            for (int64_t d = 0; d < shape.value_dim; ++d)
              ASSERT_EQ(whole.acc[static_cast<size_t>(row * shape.dims + d)],
                        view.acc[static_cast<size_t>(row * shape.value_dim + d)])
                  << row << " " << d;
        }
      }
}

}  // namespace
}  // namespace millrace
