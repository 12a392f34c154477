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
    const int64_t unit = 64 / rows.bits, within = col % unit;
    const int byte = levels[static_cast<size_t>(row * rows.stride + col / unit * 8 + within % 8)];
    const int level = byte / (1 << (within / 8 * rows.bits)) % (1 << rows.bits);
    const int64_t groups = rows.group > 0 ? (rows.cols + rows.group - 1) / rows.group : 0;
    const auto at = static_cast<size_t>(rows.group > 0 ? row * groups + col / rows.group : col);
    return f32_to_f16(static_cast<float>(static_cast<double>(f16_to_f32(scales[at])) * level + f16_to_f32(zeros[at])));
  }

  AffineRows rows;
  std::vector<uint8_t> levels;
  std::vector<uint16_t> scales, zeros;
};

TEST(AffineRows, EveryTableGivesTheBitsOfTheDefinition) {
  for (const KernelTable& table : kernel_tables()) {
    for (int bits : {2, 4}) {
      for (int64_t cols : {1, 8, 31, 32, 48, 64, 80, 96, 128, 200, 256, 576}) {
        for (int64_t group : {0, 32, 64, 128}) {
          const int64_t rows = cols % 64 == 0 ? 6 : 5;
          AffineInput input({bits, rows, cols, group}, static_cast<uint64_t>(cols + group));
          const auto out = input.run(table);
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t c = 0; c < cols; ++c)
              ASSERT_EQ(out[static_cast<size_t>(r * cols + c)], input.value(r, c))
                  << isa_name(table.isa) << " bits " << bits << " group " << group << " of " << cols << " at " << r
                  << ", " << c;
        }
      }
    }
  }
}

}  // namespace
}  // namespace millrace
