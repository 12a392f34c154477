// Stacks of experts: a scale each, whether their rows are one part or several. Whole models:
// tests/golden/matrix_scales_test.cc.
#include "models/convert/matrix_scales.h"

#include <gtest/gtest.h>

#include "formats/format.h"

namespace millrace {
namespace {

constexpr int64_t kRows = 3, kCols = 64;

SourceTensor part_of(const std::vector<float>& largest) {  // kRows rows for each
  std::vector<float> values;
  for (float most : largest)
    for (int64_t i = 0; i < kRows * kCols; ++i) values.push_back(most * static_cast<float>(i % 7 - 6) / 6);
  SourceTensor part;
  part.name = "blk.0.ffn_up_exps.weight";
  part.rows = kRows * std::ssize(largest);
  part.cols = kCols;
  part.values = std::make_shared<const std::vector<float>>(std::move(values));
  return part;
}

OutputTensor stack_of(std::vector<SourceTensor> parts, const char* name = "blk.0.ffn_up_exps.weight") {
  OutputTensor out;
  out.name = name;
  out.format = find_format("nvfp4");
  out.dims = {2, kRows, kCols};
  out.parts = std::move(parts);
  return out;
}

TEST(ScaleMatrices, ExpertsHaveOneEach) {
  ThreadPool pool(2);
  const Format& f32 = *find_format("f32");
  for (auto& parts : {std::vector{part_of({5.0f}), part_of({0.001f})}, std::vector{part_of({5.0f, 0.001f})}}) {
    std::vector<OutputTensor> tensors = {stack_of(parts)};
    scale_matrices(tensors, pool, [](size_t) { return true; });
    ASSERT_EQ(tensors.size(), 2u);
    const float limit = tensors[0].format->matrix_limit;
    ASSERT_EQ(tensors[0].scales, (std::vector<float>{5.0f / limit, 0.001f / limit}));
    EXPECT_EQ(tensors[1].name, "blk.0.ffn_up_exps.scale");
    EXPECT_EQ(tensors[1].dims, (std::vector<int64_t>{2}));
    EXPECT_EQ(tensors[1].format, &f32);
    std::vector<float> scales(2);
    ASSERT_TRUE(tensors[1].produce(reinterpret_cast<uint8_t*>(scales.data()), pool).ok());
    EXPECT_EQ(scales, tensors[0].scales);

    std::vector<uint8_t> blocks(static_cast<size_t>(tensors[0].bytes()));
    ASSERT_TRUE(tensors[0].produce(blocks.data(), pool).ok());
    std::vector<float> values(2 * kRows * kCols);
    tensors[0].format->decode(blocks.data(), values.data(), std::ssize(values));
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t expert = i / (kRows * kCols), at = i % (kRows * kCols);
      const float most = expert == 0 ? 5.0f : 0.001f,
                  want = most * static_cast<float>(static_cast<int>(at % 7) - 6) / 6;
      ASSERT_NEAR(values[i] * scales[expert], want, 0.18 * most) << i;  // half the distance of codes 4 and 6
    }
  }
}

TEST(ScaleMatrices, TablesOthersAndZerosHaveNone) {
  ThreadPool pool(1);
  std::vector<OutputTensor> tensors = {stack_of({part_of({5, 5})}, "token_embd.weight"), stack_of({part_of({5, 5})}),
                                       stack_of({part_of({5, 5})}), stack_of({part_of({0, 0})})};
  tensors[1].format = find_format("mxfp4");
  scale_matrices(tensors, pool, [](size_t i) { return i != 2; });
  for (size_t i : {0, 1, 2}) EXPECT_TRUE(tensors[i].scales.empty()) << i;
  EXPECT_EQ(tensors[3].scales, (std::vector<float>{1, 1}));
  EXPECT_EQ(tensors.size(), 5u);
}

}  // namespace
}  // namespace millrace
