// The matrices are Hadamard matrices, and sign for sign the published ones.
#include "tensor/hadamard.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

// FNV-1a of the signs, row by row: 1 for -1.
uint64_t hash_of(const std::vector<float>& values) {
  uint64_t hash = 0xcbf29ce484222325;
  for (float value : values) hash = (hash ^ (value < 0 ? 1u : 0u)) * 0x100000001b3;
  return hash;
}

// Hashes of had12 to had172 in github.com/Cornell-RelaxML/quip-sharp, lib/utils/matmul_had.py.
constexpr struct {
  int64_t order;
  uint64_t hash;
} kPublished[] = {
    {12, 0x472d1adc7b0d1269},  {20, 0xd22c29e2fedaef21},  {28, 0xb4f557fd89659049},  {36, 0x103063bb626f2e09},
    {52, 0xe167e549d5b98009},  {60, 0xb13875768b41ac29},  {108, 0xd56aff721ef31549}, {116, 0xb65b5bbbe61b1c19},
    {124, 0xc11a82a06ecaaf99}, {140, 0x951e1965629c5549}, {156, 0x54c7629c9bee46a9}, {172, 0x5adfcf034effaca9},
};

TEST(Hadamard, AreThePublishedMatrices) {
  for (const auto& [order, hash] : kPublished) {
    const std::vector<float>& m = hadamard_matrix(order);
    ASSERT_EQ(std::ssize(m), order * order);
    for (int64_t i = 0; i < order; ++i)
      for (int64_t j = i; j < order; ++j) {
        float product = 0;
        for (int64_t k = 0; k < order; ++k)
          product += m[static_cast<size_t>(i * order + k)] * m[static_cast<size_t>(j * order + k)];
        ASSERT_EQ(product, i == j ? static_cast<float>(order) : 0.0f) << order << ": " << i << ", " << j;
      }
    EXPECT_EQ(hash_of(m), hash) << order;
  }
  for (const int64_t none : {0, 1, 2, 4, 16, 92, 174}) EXPECT_TRUE(hadamard_matrix(none).empty()) << none;
}

TEST(Hadamard, SizesOfModelsAreDivided) {
  EXPECT_EQ(outer_hadamard_order(4096), 1);
  EXPECT_EQ(outer_hadamard_order(11008), 172);    // Llama 2 7B
  EXPECT_EQ(outer_hadamard_order(3 * 4096), 12);  // its fused queries, keys and values
  EXPECT_EQ(outer_hadamard_order(5120), 20);      // 13B
  EXPECT_EQ(outer_hadamard_order(13824), 108);
  EXPECT_EQ(outer_hadamard_order(6656), 52);  // Llama 1 30B
  EXPECT_EQ(outer_hadamard_order(17920), 140);
  EXPECT_EQ(outer_hadamard_order(28672), 28);   // Llama 2 70B
  EXPECT_EQ(outer_hadamard_order(22016), 172);  // Llama 1 65B
  EXPECT_EQ(outer_hadamard_order(84), 0);
  EXPECT_EQ(outer_hadamard_order(18944), 0);  // 37 x 512
  EXPECT_EQ(outer_hadamard_order(100), 0);
}

}  // namespace
}  // namespace millrace
