// AVX2 and NEON sum in eight lanes in the same order: their results have the same bits, those stored here.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/kernel_table.h"

namespace millrace {
namespace {

// Values in [-4, 4) of a linear congruential generator, exact in f32.
std::vector<float> values(int64_t count, uint32_t seed) {
  std::vector<float> out(static_cast<size_t>(count));
  for (float& x : out) {
    seed = seed * 1664525u + 1013904223u;
    x = static_cast<float>(static_cast<int32_t>(seed) >> 8) / 2097152.0f;
  }
  return out;
}

// FNV-1a of the bytes.
uint64_t hash_of(const std::vector<float>& of) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const float x : of) {
    uint8_t bytes[sizeof x];
    std::memcpy(bytes, &x, sizeof x);
    for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  }
  return hash;
}

TEST(EightLanes, HaveTheSameBitsOnEveryProcessor) {
  const Isa isa = detect_isa().has(Feature::neon) ? Isa::neon : Isa::avx2;
  if (!detect_isa().includes(isa)) GTEST_SKIP() << "needs AVX2 or NEON";
  const KernelTable table = make_kernel_table(isa);
  constexpr int64_t kCount = 1003;  // whole vectors and a rest
  const std::vector<float> x = values(kCount, 1), w = values(kCount, 2), b = values(kCount, 3);
  std::vector<float> y(kCount);
  table.rms_norm(x.data(), w.data(), 1.0f, 1e-5f, kCount, y.data());
  EXPECT_EQ(hash_of(y), 0x6f666776c8b370ccu) << "rms_norm";
  table.layer_norm(x.data(), w.data(), b.data(), 1e-5f, kCount, y.data());
  EXPECT_EQ(hash_of(y), 0x132df31b05dc2401u) << "layer_norm";
  y = x;
  table.softmax(y.data(), kCount);
  EXPECT_EQ(hash_of(y), 0xfb86f227144e0241u) << "softmax";
  table.silu_mul(x.data(), w.data(), y.data(), kCount);
  EXPECT_EQ(hash_of(y), 0x70cf3173cec6547cu) << "silu_mul";
  table.gelu_erf_mul(x.data(), w.data(), y.data(), kCount);
  EXPECT_EQ(hash_of(y), 0xa079e7ad2e5baa7bu) << "gelu_erf_mul";
  y = x;
  table.softcap(y.data(), 2.5f, kCount);
  EXPECT_EQ(hash_of(y), 0x713169d58e1cc1d5u) << "softcap";
  for (const bool half : {false, true}) {
    y = x;
    table.rope(y.data(), w.data(), b.data(), 198, half);
    EXPECT_EQ(hash_of(y), half ? 0x880c25609d6faa84u : 0x790549b61fdfac8au) << "rope " << half;
  }
}

TEST(EightLanes, AttentionHasTheSameBitsOnEveryProcessor) {
  const Isa isa = detect_isa().has(Feature::neon) ? Isa::neon : Isa::avx2;
  if (!detect_isa().includes(isa)) GTEST_SKIP() << "needs AVX2 or NEON";
  const KernelTable table = make_kernel_table(isa);
  constexpr int64_t kDim = 80, kKeys = 77, kGroup = 3;
  const std::vector<float> q = values(kGroup * kDim, 4), keys = values(kKeys * kDim, 5), v = values(kKeys * kDim, 6);
  std::vector<const uint8_t*> key_rows, value_rows;
  for (int64_t i = 0; i < kKeys; ++i) {
    key_rows.push_back(reinterpret_cast<const uint8_t*>(keys.data() + i * kDim));
    value_rows.push_back(reinterpret_cast<const uint8_t*>(v.data() + i * kDim));
  }
  std::vector<float> result(kGroup * (kDim + 2));
  AttentionArgs args;
  args.q = q.data();
  args.q_stride = kGroup * kDim;
  args.queries = 1;
  args.group = kGroup;
  args.head_dim = kDim;
  args.first_query = kKeys - 1;
  args.key_end = kKeys;
  args.k_blocks = key_rows.data();
  args.v_blocks = value_rows.data();
  args.block_tokens = 1;
  args.row_bytes = kDim * 4;
  args.max = result.data();
  args.sum = result.data() + kGroup;
  args.acc = result.data() + 2 * kGroup;
  const AttentionKernel* kernel = table.find_attention(find_format("f32"));
  ASSERT_NE(kernel, nullptr);
  kernel->run(args);
  EXPECT_EQ(hash_of(result), 0x4f3997011e40c4d1u);
}

// A product with an F16 matrix of 19 rows.
TEST(EightLanes, ProductsHaveTheSameBitsOnEveryProcessor) {
  const Isa isa = detect_isa().has(Feature::neon) ? Isa::neon : Isa::avx2;
  if (!detect_isa().includes(isa)) GTEST_SKIP() << "needs AVX2 or NEON";
  const KernelTable table = make_kernel_table(isa);
  constexpr int64_t kRows = 19, kCols = 96, kTokens = 4;
  const Format* f16 = find_format("f16");
  const MatmulKernel* kernel = table.find_matmul(f16);
  ASSERT_NE(kernel, nullptr);
  const std::vector<float> w = values(kRows * kCols, 7), x = values(kTokens * 128, 8);
  std::vector<uint8_t> stored(kRows * kCols * 2);
  for (int64_t r = 0; r < kRows; ++r)
    table.find_codec(f16)->encode(w.data() + r * kCols, stored.data() + r * kCols * 2, kCols);
  std::vector<uint8_t> packed(static_cast<size_t>(kernel->packed_bytes(kRows, kCols)) + 64);
  kernel->pack(stored.data(), nullptr, kRows, kCols, 0, kRows, packed.data());
  std::vector<float> y(kTokens * kRows);
  MatmulArgs args;
  args.weights = packed.data();
  args.rows = args.row_end = kRows;
  args.cols = kCols;
  args.x = reinterpret_cast<const uint8_t*>(x.data());
  args.x_stride = 128 * 4;
  args.tokens = kTokens;
  args.y = y.data();
  args.y_stride = kRows;
  kernel->run(args);
  EXPECT_EQ(hash_of(y), 0x867bf3f49d0d75fbu);
}

}  // namespace
}  // namespace millrace
