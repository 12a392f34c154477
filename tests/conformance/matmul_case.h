// Shared by the tests of matmul kernels: every kernel table of this machine, a matrix of random values in the stored
// format, and its product with tokens, checked for writes past the rows.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/philox.h"
#include "conformance/vnni256.h"
#include "kernel_tables.h"
#include "kernels/activation.h"
#include "kernels/kernel_table.h"
#include "kernels/linear.h"
#include "kernels/shape_table.h"
#include "tensor/half.h"

namespace millrace::testing {

// Relative to the sum of |w x|: rounding of f32 sums of up to a few thousand terms.
inline constexpr double kFloatBound = 1e-5;
inline constexpr double kQuantBound = 2e-6;
inline constexpr float kCanary = 12345.5f;

struct Shape {
  int64_t rows, cols;
};

inline const std::vector<KernelTable>& tables() {
  static const std::vector<KernelTable> all = [] {
    std::vector<KernelTable> built;
    for (Isa isa : isa_variants()) built.push_back(make_kernel_table(isa));
#if defined(__x86_64__)
    if (detect_isa().has(Feature::avx512_vnni)) {
      KernelTable table = make_kernel_table(Isa::avx2);
      table.isa = Isa::avx2.with(Feature::avx_vnni);
      add_vnni256(table);
      built.push_back(table);
      table.isa = table.isa.with(Feature::avx_vnni_int8);
      add_vnni256_int8(table);
      built.push_back(std::move(table));
    }
#endif
    return built;
  }();
  return all;
}

inline std::vector<float> normal_values(int64_t n, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = normal(engine);
  return values;
}

struct Case {
  Weight weight;
  std::vector<uint8_t> stored;
  std::vector<float> decoded;  // [rows, cols]
};

inline Case make_case(const Format& format, int64_t rows, int64_t cols, uint32_t seed) {
  Case c;
  int64_t row_bytes = format.row_bytes(cols);
  c.stored.resize(static_cast<size_t>(rows * row_bytes));
  c.decoded.resize(static_cast<size_t>(rows * cols));
  // Formats with a codebook search for the nearest entries, which takes minutes for many rows on a simulated processor:
  // rows are drawn from at most 64 different blocks.
  const int64_t blocks = rows * cols / format.block_values;
  const int64_t different = format.block_values == 1 ? blocks : std::min<int64_t>(blocks, 64);
  const std::vector<float> values = normal_values(different * format.block_values, seed);
  format.encode(values.data(), c.stored.data(), different * format.block_values);
  for (int64_t b = different; b < blocks; ++b) {
    const auto from = static_cast<int64_t>(philox_uniform(seed, 1, static_cast<uint64_t>(b)) * different);
    std::copy_n(c.stored.data() + from * format.block_bytes, format.block_bytes,
                c.stored.data() + b * format.block_bytes);
  }
  for (int64_t r = 0; r < rows; ++r) format.decode(c.stored.data() + r * row_bytes, c.decoded.data() + r * cols, cols);
  c.weight.name = std::string(format.name);
  c.weight.format = &format;
  c.weight.rows = rows;
  c.weight.cols = cols;
  c.weight.data = c.stored.data();
  return c;
}

inline AlignedBuffer scratch_for(Activation kind, int64_t tokens, int64_t cols) {
  auto buffer = AlignedBuffer::allocate(tokens * activation_row_bytes(kind, cols), "scratch");
  EXPECT_TRUE(buffer.ok());
  return std::move(*buffer);
}

// The decoded values of an encoded activation row.
inline std::vector<float> decode_activation(Activation kind, const uint8_t* row, int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    if (kind == Activation::f32) {
      out[i] = reinterpret_cast<const float*>(row)[i];
    } else if (kind == Activation::bf16) {
      out[i] = bf16_to_f32(reinterpret_cast<const uint16_t*>(row)[i]);
    } else {
      const uint8_t* record = row + i / 32 * kQ8GroupBytes;
      const float unit = *reinterpret_cast<const float*>(row + q8_unit_at(n)),
                  scale = *reinterpret_cast<const float*>(record + kQ8ScaleAt);
      out[i] = unit * scale * static_cast<float>(reinterpret_cast<const int8_t*>(record)[i % 32]);
    }
  }
  return out;
}

// y of every token, [tokens, rows], with a canary column checked and removed.
inline std::vector<float> multiply(const Weight& weight, const KernelTable& table, ThreadPool& pool,
                                   const std::vector<float>& x, int64_t tokens, const ShapeTable* shapes = nullptr) {
  Activation kind = weight.format->activation;
  AlignedBuffer scratch = scratch_for(kind, tokens, weight.cols);
  ActivationRows rows =
      encode_activations(table, pool, kind, x.data(), weight.cols, tokens, weight.cols, scratch.data());
  int64_t stride = weight.rows + 1;
  std::vector<float> padded(static_cast<size_t>(tokens * stride), kCanary);
  LinearPart part{.weight = &weight, .x = rows, .y = padded.data(), .y_stride = stride};
  linear(pool, {&part, 1}, shapes);
  std::vector<float> y;
  for (int64_t t = 0; t < tokens; ++t) {
    y.insert(y.end(), padded.begin() + t * stride, padded.begin() + t * stride + weight.rows);
    EXPECT_EQ(padded[static_cast<size_t>(t * stride + weight.rows)], kCanary) << weight.name << " wrote past its rows";
  }
  return y;
}

inline std::string where(const Format& format, const KernelTable& table, const Shape& shape) {
  return std::string(format.name) + " " + isa_name(table.isa) + " " + std::to_string(shape.rows) + "x" +
         std::to_string(shape.cols);
}

}  // namespace millrace::testing
