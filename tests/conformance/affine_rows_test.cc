// Levels under scales and zeros (AffineRows): every kernel table gives the bits of the definition, and writes nothing
// else.
#include "kernel_tables.h"
#include "tensor/half.h"

namespace millrace {
namespace {

using namespace testing;

struct AffineCase {
  int bits;
  int64_t rows, cols, group;
  bool codes;
};

// Levels, scales and zeros drawn at random; scales from tiny to large, and zeros of both signs.
struct AffineInput {
  AffineInput(const AffineCase& c, uint64_t seed) : rows{.bits = c.bits, .rows = c.rows, .cols = c.cols} {
    const auto draw = [&](uint64_t what, size_t i) { return philox_uniform(seed, what, i); };
    rows.stride = affine_row_bytes(c.bits, c.cols);
    rows.group = c.group;
    levels.resize(static_cast<size_t>(c.rows * rows.stride));
    for (size_t i = 0; i < levels.size(); ++i) levels[i] = static_cast<uint8_t>(draw(1, i) * 256);
    const int64_t count = c.group > 0 ? c.rows * ((c.cols + c.group - 1) / c.group) : c.cols;
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i);
      scales.push_back(f32_to_f16(static_cast<float>(std::pow(2.0, -26 + 36 * draw(2, at)))));
      zeros.push_back(f32_to_f16(static_cast<float>((draw(3, at) - 0.5) * std::pow(2.0, -20 + 30 * draw(4, at)))));
    }
    rows.levels = levels.data();
    rows.scales = reinterpret_cast<const uint8_t*>(scales.data());
    rows.zeros = reinterpret_cast<const uint8_t*>(zeros.data());
    for (size_t i = 0; i < 16; ++i) codes.push_back(f16_to_f32(f32_to_f16(static_cast<float>(4 * draw(5, i) - 2))));
    if (c.codes) rows.codes = codes.data();
  }

  std::vector<uint16_t> run(const KernelTable& table) {
    std::vector<uint16_t> out(static_cast<size_t>(rows.rows * rows.cols + 1), 0xabcd);
    rows.out = reinterpret_cast<uint8_t*>(out.data());
    table.decode_affine(rows);
    EXPECT_EQ(out.back(), 0xabcd);
    out.pop_back();
    return out;
  }

  // One value, by the definition.
  uint16_t value(int64_t row, int64_t col) const {
    const int64_t unit = rows.bits == 4 ? 16 : 32, bytes = rows.bits == 3 ? 12 : 8, within = col % unit;
    const auto first = static_cast<size_t>(row * rows.stride + col / unit * bytes);
    const int low_bits = rows.bits == 4 ? 4 : 2;
    int level = levels[first + static_cast<size_t>(within % 8)] / (1 << (within / 8 * low_bits)) % (1 << low_bits);
    if (rows.bits == 3) level += 4 * (levels[first + 8 + static_cast<size_t>(within / 8)] >> (within % 8) & 1);
    const double code = rows.codes ? double{codes[static_cast<size_t>(level)]} : level;
    const int64_t groups = rows.group > 0 ? (rows.cols + rows.group - 1) / rows.group : 0;
    const auto at = static_cast<size_t>(rows.group > 0 ? row * groups + col / rows.group : col);
    return f32_to_f16(static_cast<float>(static_cast<double>(f16_to_f32(scales[at])) * code + f16_to_f32(zeros[at])));
  }

  AffineRows rows;
  std::vector<uint8_t> levels;
  std::vector<uint16_t> scales, zeros;
  std::vector<float> codes;
};

TEST(AffineRows, EveryTableGivesTheBitsOfTheDefinition) {
  for (const KernelTable& table : kernel_tables()) {
    for (const auto& [bits, codes] : {std::pair{2, false}, {3, false}, {4, false}, {2, true}, {3, true}, {4, true}}) {
      for (int64_t cols : {1, 8, 31, 32, 48, 64, 80, 96, 128, 200, 256, 576}) {
        for (int64_t group : {0, 32, 64, 128}) {
          const int64_t rows = cols % 64 == 0 ? 6 : 5;
          AffineInput input({bits, rows, cols, group, codes}, static_cast<uint64_t>(cols + group));
          const auto out = input.run(table);
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t c = 0; c < cols; ++c)
              ASSERT_EQ(out[static_cast<size_t>(r * cols + c)], input.value(r, c))
                  << isa_name(table.isa) << " bits " << bits << (codes ? " codes" : "") << " group " << group << " of "
                  << cols << " at " << r << ", " << c;
        }
      }
    }
  }
}

}  // namespace
}  // namespace millrace
