#include "tensor/half.h"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace {
namespace {

TEST(Half, EveryF16BitPatternSurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    auto half = static_cast<uint16_t>(bits);
    float value = f16_to_f32(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
    } else {
      ASSERT_EQ(f32_to_f16(value), half) << bits;
    }
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(f32_to_f16(1.0f + 0x1.0p-11f), f32_to_f16(1.0f));              // tie, down to even
  EXPECT_EQ(f32_to_f16(1.0f + 0x1.8p-10f), f32_to_f16(1.0f + 0x1.0p-9f));  // tie, up to even
  EXPECT_EQ(f32_to_f16(65519.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(0x1.0p-25f), 0);
  EXPECT_EQ(f32_to_f16(0x1.8p-24f), 2);
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1.0p-8f), f32_to_bf16(1.0f));
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1.8p-7f), f32_to_bf16(1.0f + 0x1.0p-6f));
}

}  // namespace
}  // namespace millrace
