// Sums of columns: every build against the definition, one row at a time, bit for bit.
#include "kernels/neuron_columns.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/cpu.h"

namespace millrace {
namespace {

std::vector<const NeuronColumnKernels*> neuron_builds() {
  std::vector<const NeuronColumnKernels*> out = {&portable_neuron_columns()};
#if defined(__x86_64__)
  if (detect_isa().includes(Isa::avx2)) out.push_back(&avx2_neuron_columns());
  if (detect_isa().includes(Isa::avx2.with(Feature::avx512))) out.push_back(&avx512_neuron_columns());
#endif
  return out;
}

TEST(NeuronColumns, EveryBuildGivesTheBitsOfTheDefinition) {
  std::mt19937_64 random(7);
  for (const int64_t rows : {1, 15, 32, 192, 256, 257, 700}) {
    for (const std::vector<int32_t>& counts :
         std::vector<std::vector<int32_t>>{{}, {1}, {2, 1}, {32, 3, 31, 1}, {5, 8, 32, 32, 7}}) {
      std::vector<std::vector<int8_t>> levels;
      std::vector<std::vector<float>> scales;
      std::vector<const int8_t*> columns;
      std::vector<const float*> scale_rows;
      std::vector<int8_t> x;
      std::vector<int32_t> ends;
      std::vector<float> x_scales;
      for (size_t g = 0; g < counts.size(); ++g) {
        for (int32_t i = 0; i < counts[g]; ++i) {
          // The extremes come first: their products are the largest that 16 bits must hold.
          std::vector<int8_t>& column = levels.emplace_back(static_cast<size_t>(rows));
          for (int8_t& level : column)
            level = static_cast<int8_t>(i < 4 ? -128 : static_cast<int>(random() % 256) - 128);
          x.push_back(static_cast<int8_t>(i < 2 ? 127 : i < 4 ? -127 : static_cast<int>(random() % 255) - 127));
        }
        ends.push_back(static_cast<int32_t>(x.size()));
        std::vector<float>& own = scales.emplace_back(static_cast<size_t>(rows));
        for (float& scale : own) scale = static_cast<float>(static_cast<int>(random() % 2001) - 1000) * 0x1p-12f;
        x_scales.push_back(static_cast<float>(random() % 1000) * 0x1p-9f);
      }
      for (const auto& column : levels) columns.push_back(column.data());
      for (const auto& own : scales) scale_rows.push_back(own.data());
      const NeuronColumns from{columns.data(),    x.data(),        ends.data(),
                               scale_rows.data(), x_scales.data(), std::ssize(counts)};
      std::vector<float> want(static_cast<size_t>(rows));
      for (int64_t r = 0; r < rows; ++r) {
        float y = 0;
        for (size_t g = 0, at = 0; g < counts.size(); ++g) {
          int32_t dot = 0;
          for (; at < static_cast<size_t>(ends[g]); ++at) dot += levels[at][static_cast<size_t>(r)] * x[at];
          y = std::fma(scales[g][static_cast<size_t>(r)] * x_scales[g], static_cast<float>(dot), y);
        }
        want[static_cast<size_t>(r)] = y;
      }
      for (const NeuronColumnKernels* build : neuron_builds()) {
        std::vector<float> y(static_cast<size_t>(rows), -1.0f);
        const int64_t middle = rows / 3;
        build->sum(from, 0, middle, y.data());
        build->sum(from, middle, rows, y.data());
        EXPECT_EQ(y, want) << rows << " rows";
      }
    }
  }
}

}  // namespace
}  // namespace millrace
