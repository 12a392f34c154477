// Hand-computed cases of the simple formats, and lookups in the format list.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "formats/format.h"

namespace millrace {
namespace {

std::vector<uint8_t> encode(const Format& format, const std::vector<float>& values) {
  std::vector<uint8_t> bytes(static_cast<size_t>(format.row_bytes(static_cast<int64_t>(values.size()))));
  format.encode(values.data(), bytes.data(), static_cast<int64_t>(values.size()));
  return bytes;
}

std::vector<float> decode(const Format& format, const std::vector<uint8_t>& bytes) {
  std::vector<float> values(bytes.size() / format.block_bytes * format.block_values);
  format.decode(bytes.data(), values.data(), static_cast<int64_t>(values.size()));
  return values;
}

TEST(FormatList, FindsByNameTypeAndDtype) {
  EXPECT_EQ(find_format("q4_0")->gguf_type, 2);
  EXPECT_EQ(find_format_gguf(8)->name, "q8_0");
  EXPECT_EQ(find_format_safetensors("BF16")->name, "bf16");
  EXPECT_EQ(find_format("Q4_0"), nullptr);
  EXPECT_EQ(find_format(""), nullptr);
  EXPECT_EQ(find_format_gguf(-1), nullptr);
  EXPECT_EQ(find_format_gguf(4), nullptr);
  EXPECT_EQ(find_format_safetensors(""), nullptr);
}

TEST(PlainFloats, StoreLittleEndian) {
  EXPECT_EQ(encode(*find_format("f32"), {1.0f}), (std::vector<uint8_t>{0, 0, 0x80, 0x3f}));
  EXPECT_EQ(encode(*find_format("f16"), {-2.0f}), (std::vector<uint8_t>{0, 0xc0}));
  EXPECT_EQ(encode(*find_format("bf16"), {1.0f}), (std::vector<uint8_t>{0x80, 0x3f}));
}

TEST(PlainFloats, F32PreservesEveryFiniteValue) {
  std::vector<float> values = {0.0f, -0.0f, 1e-45f, -1e-38f, 3.4e38f, 0.1f, std::numeric_limits<float>::max()};
  auto back = decode(*find_format("f32"), encode(*find_format("f32"), values));
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(std::bit_cast<uint32_t>(back[i]), std::bit_cast<uint32_t>(values[i]));
}

TEST(PlainFloats, ClampInsteadOfRoundingToInfinity) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(decode(*find_format("f16"), encode(*find_format("f16"), {1e6f, -inf}))[0], 65504.0f);
  EXPECT_EQ(decode(*find_format("bf16"), encode(*find_format("bf16"), {3.4028235e38f}))[0], 0x1.FEp127f);
}

TEST(Q8_0, HandComputedBlock) {
  std::vector<float> values(32, 0.0f);
  values[0] = 127.0f;  // d = 1
  values[1] = -63.4f;
  values[2] = 2.6f;
  values[31] = -127.0f;
  auto bytes = encode(*find_format("q8_0"), values);
  EXPECT_EQ(bytes[0], 0x00);
  EXPECT_EQ(bytes[1], 0x3c);
  EXPECT_EQ(static_cast<int8_t>(bytes[2]), 127);
  EXPECT_EQ(static_cast<int8_t>(bytes[3]), -63);
  EXPECT_EQ(static_cast<int8_t>(bytes[4]), 3);
  EXPECT_EQ(static_cast<int8_t>(bytes[33]), -127);
}

TEST(Q4_0, HandComputedBlock) {
  std::vector<float> values(32, 0.0f);
  values[0] = -16.0f;  // largest in magnitude: d = 2, q = 0
  values[1] = 14.0f;   // q = 15
  values[16] = 3.1f;   // q = 10, high half of byte 0
  auto bytes = encode(*find_format("q4_0"), values);
  EXPECT_EQ(bytes[0], 0x00);
  EXPECT_EQ(bytes[1], 0x40);
  EXPECT_EQ(bytes[2], 0xa0);
  EXPECT_EQ(bytes[3], 0x8f);
  EXPECT_EQ(bytes[4], 0x88);
  auto back = decode(*find_format("q4_0"), bytes);
  EXPECT_EQ(back[0], -16.0f);
  EXPECT_EQ(back[16], 4.0f);
}

TEST(Q4_0, LargestPositiveValueGivesANegativeScale) {
  std::vector<float> values(32, 1.0f);
  values[5] = 8.0f;
  auto bytes = encode(*find_format("q4_0"), values);
  EXPECT_EQ(bytes[1], 0xbc);  // -1
  EXPECT_EQ(decode(*find_format("q4_0"), bytes), values);
}

TEST(Q8_0, ScaleTooSmallForF16StaysAccurate) {
  std::vector<float> values(32);
  for (int i = 0; i < 32; ++i) values[i] = static_cast<float>(i) * 0x1p-22f;  // d is an f16 subnormal
  auto back = decode(*find_format("q8_0"), encode(*find_format("q8_0"), values));
  for (int i = 0; i < 32; ++i) EXPECT_NEAR(back[i], values[i], 0x1p-24f);
}

}  // namespace
}  // namespace millrace
