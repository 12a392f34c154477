// One list of cases for every registered format. Expected values in format_vectors.txt come from
// make_format_vectors.py, which shares nothing with the codecs.
#include "formats/format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "formats/four_of_eight.h"
#include "test_paths.h"

namespace millrace {
namespace {

// Root-mean-square error relative to the data's, for normally distributed values: that of a correct plain rounding,
// plus a few percent.
const std::map<std::string_view, double> kErrorBound = {
    {"f32", 0},          {"f16", 3e-4},      {"bf16", 2e-3},    {"f8_e4m3", 0.035}, {"q8_0", 0.0058},
    {"q4_0", 0.092},     {"q4_1", 0.083},    {"q5_0", 0.046},   {"q5_1", 0.040},    {"q2_k", 0.28},
    {"q3_k", 0.152},     {"q4_k", 0.075},    {"q5_k", 0.038},   {"q6_k", 0.0175},   {"iq4_nl", 0.079},
    {"iq4_xs", 0.080},   {"mxfp4", 0.117},   {"nf4", 0.09},     {"fp4", 0.115},     {"tq1_0", 0.445},
    {"tq2_0", 0.445},    {"iq1_s", 0.46},    {"iq1_m", 0.43},   {"iq2_xxs", 0.343}, {"iq2_xs", 0.302},
    {"iq2_s", 0.252},    {"iq3_xxs", 0.189}, {"iq3_s", 0.138},  {"nvfp4", 0.103},   {"q1_0", 0.61},
    {"q2_0", 0.42},      {"e8p", 0.31},      {"e8p_3", 0.177},  {"e8p_4", 0.097},   {"q8_4of8", 0.0059},
    {"q4_4of8", 0.0985}, {"q2_g64", 0.42},   {"q2_g128", 0.44}, {"q3_g64", 0.2},    {"q3_g128", 0.21},
};

// Formats for which rounding already rounded values changes nothing.
const std::set<std::string_view> kIdempotent = {"f32",  "f16",   "bf16",  "f8_e4m3", "q8_0",  "q4_0",
                                                "q5_0", "mxfp4", "tq1_0", "tq2_0",   "nvfp4", "q1_0"};

// Formats whose values are no levels of their own, but points of a grid together.
bool is_grid(const Format& format) { return format.block_values > 1 && format.levels == 0; }

// Values that the format can store: those of sparse formats are zero where they are not among the first four of eight.
std::vector<float> storable(const Format& format, std::vector<float> values) {
  for (size_t i = 0; is_four_of_eight(format) && i < values.size(); ++i)
    if (i % 8 >= 4) values[i] = 0;
  return values;
}

double relative_error(const std::vector<float>& exact, const std::vector<float>& rounded) {
  double error = 0, power = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    error += std::pow(static_cast<double>(rounded[i]) - exact[i], 2);
    power += std::pow(static_cast<double>(exact[i]), 2);
  }
  return std::sqrt(error / power);
}

class FormatConformance : public ::testing::TestWithParam<const Format*> {
 protected:
  const Format& format() const { return *GetParam(); }

  std::vector<uint8_t> encode(const std::vector<float>& values) const {
    auto n = static_cast<int64_t>(values.size());
    std::vector<uint8_t> bytes(static_cast<size_t>(format().row_bytes(n)));
    format().encode(values.data(), bytes.data(), n);
    return bytes;
  }

  std::vector<float> decode(const std::vector<uint8_t>& bytes) const {
    std::vector<float> values(bytes.size() / format().block_bytes * format().block_values);
    format().decode(bytes.data(), values.data(), static_cast<int64_t>(values.size()));
    return values;
  }

  std::vector<float> round_trip(const std::vector<float>& values) const { return decode(encode(values)); }

  std::vector<float> normal(int64_t n, float deviation, uint32_t seed) const {
    std::mt19937 engine(seed);
    std::vector<float> out(static_cast<size_t>(n));
    for (auto& x : out) {  // sum of uniforms: the same on every standard library
      double sum = -6;
      for (int i = 0; i < 12; ++i) sum += static_cast<double>(engine()) * 0x1p-32;
      x = static_cast<float>(sum) * deviation;
    }
    return out;
  }
};

TEST_P(FormatConformance, DecodesTheVectors) {
  std::ifstream in(std::string(MILLRACE_SOURCE_DIR) + "/tests/conformance/format_vectors.txt");
  ASSERT_TRUE(in) << "tests/conformance/format_vectors.txt is missing";
  std::string line;
  int blocks = 0;
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    std::string name, hex, bits;
    fields >> name >> hex;
    if (name != format().name) continue;
    ++blocks;
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i + 1 < hex.size(); i += 2)
      bytes.push_back(static_cast<uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    auto values = decode(bytes);
    size_t i = 0;
    for (; fields >> bits; ++i) {
      ASSERT_LT(i, values.size());
      auto expected = std::bit_cast<float>(static_cast<uint32_t>(std::stoul(bits, nullptr, 16)));
      ASSERT_EQ(values[i], expected) << name << " block " << blocks << " value " << i;
    }
    ASSERT_EQ(i, values.size());
  }
  EXPECT_GE(blocks, 2) << "no vectors: run make_format_vectors.py";
}

TEST_P(FormatConformance, RoundTripErrorMatchesTheBits) {
  auto bound = kErrorBound.find(format().name);
  ASSERT_NE(bound, kErrorBound.end()) << "add a bound for this format";
  for (float deviation : {1e-2f, 0.5f, 40.0f}) {
    if (deviation < 0.1f && format().name == "f8_e4m3") continue;  // its subnormals: coarser by design
    auto values = storable(format(), normal(256 * 64, deviation, 7));
    auto back = round_trip(values);
    EXPECT_LE(relative_error(values, back), bound->second) << "at deviation " << deviation;
  }
}

TEST_P(FormatConformance, BlocksAreIndependent) {
  auto values = normal(format().block_values * 3, 0.5f, 11);
  auto together = encode(values);
  for (int b = 0; b < 3; ++b) {
    std::vector<float> one(values.begin() + b * format().block_values,
                           values.begin() + (b + 1) * format().block_values);
    std::vector<uint8_t> expected(together.begin() + b * format().block_bytes,
                                  together.begin() + (b + 1) * format().block_bytes);
    EXPECT_EQ(encode(one), expected) << "block " << b;
  }
}

TEST_P(FormatConformance, WritesExactlyItsRow) {
  int64_t n = format().block_values * 2;
  auto values = normal(n, 1.0f, 3);
  auto bytes = static_cast<size_t>(format().row_bytes(n));
  std::vector<uint8_t> buffer(bytes + 65, 0xA5);
  format().encode(values.data(), buffer.data() + 1, n);  // unaligned on purpose
  EXPECT_EQ(buffer[0], 0xA5);
  for (size_t i = bytes + 1; i < buffer.size(); ++i) ASSERT_EQ(buffer[i], 0xA5);
  std::vector<float> out(static_cast<size_t>(n) + 8, 77.0f);
  format().decode(buffer.data() + 1, out.data(), n);
  for (size_t i = static_cast<size_t>(n); i < out.size(); ++i) ASSERT_EQ(out[i], 77.0f);
  format().decode(buffer.data(), out.data(), 0);
}

TEST_P(FormatConformance, ZerosStayZero) {
  for (float zero : {0.0f, -0.0f}) {
    for (float x : round_trip(std::vector<float>(512, zero))) ASSERT_EQ(x, 0.0f);
  }
}

TEST_P(FormatConformance, ConstantsStayClose) {
  double relative = format().name == "mxfp4" ? 0.2 : 0.07;  // a power-of-two scale cannot represent every constant
  for (float c : {1.0f, -1.0f, 0.37f, -250.0f, 0.01f}) {
    const auto constant = storable(format(), std::vector<float>(512, c)), back = round_trip(constant);
    for (size_t i = 0; i < back.size(); ++i) ASSERT_NEAR(back[i], constant[i], std::fabs(c) * relative) << c;
  }
}

TEST_P(FormatConformance, ExtremeInputStaysFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float most = std::numeric_limits<float>::max();
  for (float extreme : {inf, -inf, nan, most, -most, 1e30f, 65520.0f, 1e-38f, 1e-45f}) {
    for (bool alone : {true, false}) {
      auto values = normal(512, 1.0f, 5);
      for (size_t i = 0; i < values.size(); i += alone ? 97 : 1) values[i] = extreme;
      auto bytes = encode(values);
      for (float x : decode(bytes)) ASSERT_TRUE(std::isfinite(x)) << extreme;
      ASSERT_EQ(format().find_non_finite(bytes.data(), 512), -1) << extreme;
    }
  }
  EXPECT_EQ(round_trip(std::vector<float>(256, nan)), std::vector<float>(256, 0.0f));
}

TEST_P(FormatConformance, TinyValuesDoNotGrow) {
  for (float scale : {1e-6f, 1e-8f, 1e-20f, 1e-40f}) {
    auto values = normal(512, scale, 9);
    auto back = round_trip(values);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_LE(std::fabs(back[i]), std::max(8.0f * scale, 0x1p-10f * 1e-3f));
  }
}

TEST_P(FormatConformance, AnyBytesDecode) {
  std::mt19937 engine(13);
  std::vector<uint8_t> bytes(static_cast<size_t>(format().block_bytes) * 512);
  for (auto& byte : bytes) byte = static_cast<uint8_t>(engine());
  auto values = decode(bytes);
  int64_t bad = format().find_non_finite(bytes.data(), static_cast<int64_t>(values.size()));
  int64_t good_values = (bad < 0 ? 512 : bad) * format().block_values;
  for (int64_t i = 0; i < good_values; ++i) ASSERT_FALSE(std::isnan(values[static_cast<size_t>(i)])) << i;
}

TEST_P(FormatConformance, FindsTheFirstNonFiniteBlock) {
  auto bytes = encode(normal(format().block_values * 4, 1.0f, 17));
  int64_t n = format().block_values * 4;
  EXPECT_EQ(format().find_non_finite(bytes.data(), n), -1);
  EXPECT_EQ(format().find_non_finite(bytes.data(), 0), -1);
  for (int b : {3, 2}) {  // all ones is NaN in every kind of scale
    std::fill_n(bytes.begin() + b * format().block_bytes, format().block_bytes, uint8_t{0xff});
    EXPECT_EQ(format().find_non_finite(bytes.data(), n), b);
  }
  EXPECT_EQ(format().find_non_finite(bytes.data(), format().block_values * 2), -1);
}

// Rounded values stay the same or, where scales are fitted again, change less than the first time.
TEST_P(FormatConformance, RoundingTwiceAddsLittle) {
  for (float deviation : {1e-3f, 0.02f, 1.0f}) {
    auto once = round_trip(normal(4096, deviation, 19));
    auto twice = round_trip(once);
    if (kIdempotent.contains(format().name)) {
      EXPECT_EQ(twice, once) << "at deviation " << deviation;
    } else {
      EXPECT_LE(relative_error(once, twice), 0.6 * kErrorBound.at(format().name)) << "at deviation " << deviation;
    }
  }
}

// Quantizers that choose the levels: a level changes its own value only, and all levels of a block are within reach.
TEST_P(FormatConformance, LevelsAreStoredOneByOne) {
  const bool points = format().name.starts_with("e8p") || is_four_of_eight(format()) ||
                      (format().name.starts_with("iq") && format().name[2] < '4');
  EXPECT_EQ(is_grid(format()), points) << "set_level is missing";
  EXPECT_EQ(format().levels > 1, format().block_values > 1 && !is_grid(format()));
  EXPECT_EQ(format().levels > 0, format().set_level != nullptr);
  if (format().levels == 0) return;
  const auto encoded = encode(normal(format().block_values, 1.0f, 23));
  const auto values = decode(encoded);
  for (int j = 0; j < format().block_values; ++j) {
    std::set<float> reached;
    auto bytes = encoded;
    for (int level = 0; level < format().levels; ++level) {
      format().set_level(bytes.data(), j, level);
      auto changed = decode(bytes);
      reached.insert(changed[static_cast<size_t>(j)]);
      changed[static_cast<size_t>(j)] = values[static_cast<size_t>(j)];
      ASSERT_EQ(changed, values) << "value " << j << " level " << level;
    }
    EXPECT_GE(static_cast<int>(reached.size()), format().levels - 1) << j;  // mxfp4 has two zeros
    EXPECT_TRUE(reached.contains(values[static_cast<size_t>(j)])) << j;
  }
}

// Of each eight values sparse formats keep the four of largest magnitude, wherever they are: no weight of a matrix that
// was pruned to 4:8 or 2:4 is lost.
TEST_P(FormatConformance, SparseFormatsKeepFourOfEight) {
  if (!is_four_of_eight(format())) return;
  std::vector<float> values;
  for (int mask = 0; mask < 256; ++mask) {
    if (std::popcount(static_cast<unsigned>(mask)) > 4) continue;
    for (int i = 0; i < 8; ++i) values.push_back(mask >> i & 1 ? (i % 2 ? -1.0f : 1.0f) : 0.0f);
  }
  values.resize((values.size() + 31) / 32 * 32);
  auto back = round_trip(values);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(back[i], values[i], 0.01f) << i;

  values = normal(512, 1.0f, 29);
  back = round_trip(values);
  for (size_t first = 0; first < values.size(); first += 8) {
    std::vector<float> magnitudes;
    for (size_t i = first; i < first + 8; ++i) magnitudes.push_back(std::fabs(values[i]));
    std::ranges::sort(magnitudes);
    for (size_t i = first; i < first + 8; ++i) {
      if (std::fabs(values[i]) < magnitudes[4]) {
        ASSERT_EQ(back[i], 0.0f) << i;
      } else {
        ASSERT_NEAR(back[i], values[i], 0.3f) << i;
      }
    }
  }
}

TEST_P(FormatConformance, HasValidGeometryAndIsRegistered) {
  EXPECT_GT(format().block_values, 0);
  EXPECT_GT(format().block_bytes, 0);
  EXPECT_EQ(256 % format().block_values, 0);
  EXPECT_EQ(format().row_bytes(512), 512 / format().block_values * format().block_bytes);
  EXPECT_EQ(find_format(format().name), &format());
  if (format().gguf_type >= 0) {
    EXPECT_EQ(find_format_gguf(format().gguf_type), &format());
  }
  if (!format().safetensors.empty()) {
    EXPECT_EQ(find_format_safetensors(format().safetensors), &format());
  }
}

INSTANTIATE_TEST_SUITE_P(All, FormatConformance,
                         ::testing::ValuesIn(formats().members().begin(), formats().members().end()),
                         [](const auto& member) { return std::string(member.param->name); });

}  // namespace
}  // namespace millrace
