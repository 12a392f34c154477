// The packers against the layouts' definition (matmul_pack.h), value by value: every format, with rows and columns that
// do not fill panels and cells.
#if defined(__x86_64__) || defined(__aarch64__)
#include "kernels/vector/matmul_pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <vector>

#include "kernels/vector/packed_scales.h"

namespace millrace {
namespace {

std::vector<uint8_t> random_bytes(int64_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(engine());
  return bytes;
}

// Sets `value` (a bit field of a byte that was zero there).
void put(std::vector<uint8_t>& out, int64_t at, int value) {
  out[static_cast<size_t>(at)] = static_cast<uint8_t>(out[static_cast<size_t>(at)] | value);
}

// The words of a block's columns and values, of a shape with four_of_eight (formats/four_of_eight.h).
void place_four_of_eight(const QuantShape& shape, const uint8_t* stored, int64_t group, int64_t row, int64_t panel,
                         std::vector<uint8_t>& out) {
  const QuantCell cell = quant_cell(shape);
  const int64_t at = panel + group / cell.groups * cell.bytes + cell.planes_at + group % cell.groups * cell.group_bytes;
  for (int i = 0; i < 4; ++i) put(out, at + row * 4 + i, stored[2 + i]);
  for (int i = 0; i < 16; ++i) {
    const bool nibbles = shape.low_bits == 4;
    const int value = nibbles ? stored[6 + i % 8] >> (i / 8 * 4) & 15 : stored[6 + i];
    const int plane = nibbles ? i % 8 / 4 : i / 4;
    put(out, at + (1 + plane) * cell.plane_bytes + row * 4 + i % 4, nibbles ? value << (i / 8 * 4) : value);
  }
}

// One stored block into the panel that starts at `panel`, as matmul_pack.h describes it.
void place(const QuantShape& shape, const QuantBlock& block, int64_t first_group, int64_t row, int64_t panel,
           std::vector<uint8_t>& out) {
  const QuantCell cell = quant_cell(shape);
  panel += cell.head_bytes;
  for (int64_t i = 0; i < shape.groups * 32 && !shape.four_of_eight; ++i) {
    const int64_t group = first_group + i / 32, vector = i % 32 / 4;
    const int64_t planes =
        panel + group / cell.groups * cell.bytes + cell.planes_at + group % cell.groups * cell.group_bytes;
    auto put_bits = [&](int64_t first_plane, int bits, int value) {
      put(out, planes + (first_plane + vector % bits) * cell.plane_bytes + row * 4 + i % 4,
          value << (vector / bits * bits));
    };
    const int level = block.level[i];
    put_bits(0, shape.low_bits, level & ((1 << shape.low_bits) - 1));
    const int high = level >> shape.low_bits;
    if (shape.high_bits) put_bits(shape.low_bits, shape.high_bits, high & ((1 << shape.high_bits) - 1));
    if (shape.shared_bit && i % 8 == 0) {
      const int64_t bit = group % cell.groups * 4 + i % 32 / 8;
      put(out, panel + group / cell.groups * cell.bytes + cell.shared_at + row * 4 + bit / 8,
          (high >> shape.high_bits) << (bit % 8));
    }
  }
  const int64_t at = panel + first_group / cell.groups * cell.bytes;
  const int64_t scale = (shape.per_group_scale() ? first_group % cell.groups : 0) * kPanelRows + row;
  if (shape.e8m0) {
    put(out, at + scale, block.d);
  } else if (!shape.e4m3) {
    put(out, at + scale * 2, block.d & 255);
    put(out, at + scale * 2 + 1, block.d >> 8);
  }
  if (shape.has_min) {
    put(out, at + cell.min_at + scale * 2, block.min & 255);
    put(out, at + cell.min_at + scale * 2 + 1, block.min >> 8);
  }
  auto put_field = [&](int field, int value) {
    if (shape.sub_bits == 8) return put(out, at + cell.field_at + field * kPanelRows + row, value & 255);
    put(out, at + cell.field_at + field / 2 * kPanelRows + row, (value & 15) << (field % 2 * 4));
    if (shape.sub_bits == 6)
      put(out, at + cell.high_field_at + field / 4 * kPanelRows + row, (value >> 4) << (field % 4 * 2));
  };
  for (int i = 0; i < shape.sub_count(); ++i) {
    put_field(sub_field(shape, i, false), block.scale[i] + shape.sub_bias);
    if (shape.has_min) put_field(sub_field(shape, i, true), block.minimum[i]);
  }
}

void place_head(const QuantSource& source, int64_t panel, std::vector<uint8_t>& out) {
  if (quant_cell(source.shape).head_bytes == 0) return;
  for (int i = 0; source.codes && i < 16; ++i) {
    put(out, panel + i, source.codes[i] & 255);
    put(out, panel + 16 + i, source.codes[i] + 128);
  }
  const auto unit = std::bit_cast<uint32_t>(source.unit);
  for (int i = 0; i < 4; ++i) put(out, panel + 32 + i, static_cast<int>(unit >> (8 * i) & 255));
}

const MatmulKernel& machine_kernel(const Format* format) {
  static const KernelTable table = make_kernel_table(detect_isa());
  return *table.find_matmul(format);
}

TEST(MatmulPack, QuantizedPanelsMatchTheLayout) {
  for (int index = 0; index < kQuantSourceCount + kCarriedCount; ++index) {
    const QuantSource& source = *quant_source_at(index);
    const Format* format = quant_format_at(index);
    if (!format) continue;
    for (int64_t rows : {1, 31, 32, 33, 70}) {
      const int64_t cols = 3 * format->block_values;
      const auto stored = random_bytes(rows * format->row_bytes(cols), static_cast<unsigned>(index + rows));
      const QuantShape& shape = source.carrier >= 0 ? kQuantShapes[source.carrier] : source.shape;
      const int parts = source.shape.groups / shape.groups;  // blocks of the carrier in a stored one
      const int64_t panel_bytes = quant_panel_bytes(quant_cell(shape), cols);
      const int64_t bytes = (rows + kPanelRows - 1) / kPanelRows * panel_bytes;
      std::vector<uint8_t> expected(static_cast<size_t>(bytes)), packed(static_cast<size_t>(bytes), 0xa5);
      QuantBlock block;
      for (int64_t panel = 0; panel < bytes; panel += panel_bytes) place_head(source, panel, expected);
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t b = 0; b < 3; ++b) {
          source.split(stored.data() + row * format->row_bytes(cols) + b * format->block_bytes, block);
          for (int part = 0; part < parts; ++part) {
            QuantBlock one = block;
            std::copy_n(block.level + part * shape.groups * 32, shape.groups * 32, one.level);
            if (shape.four_of_eight)
              place_four_of_eight(shape, stored.data() + row * format->row_bytes(cols) + b * format->block_bytes, b,
                                  row % kPanelRows, row / kPanelRows * panel_bytes, expected);
            place(shape, one, (b * parts + part) * shape.groups, row % kPanelRows, row / kPanelRows * panel_bytes,
                  expected);
          }
        }
      }
      for (int64_t begin = 0; begin < rows; begin += kPanelRows)
        pack_quant_panels(index, stored.data(), rows, cols, begin, std::min(rows, begin + kPanelRows), packed.data());
      ASSERT_EQ(packed, expected) << source.format << ", " << rows << " rows";
      // Of this processor, whole panels together.
      std::ranges::fill(packed, 0xa5);
      machine_kernel(format).pack(stored.data(), nullptr, rows, cols, 0, rows, packed.data());
      ASSERT_EQ(packed, expected) << source.format << ", " << rows << " rows";
    }
  }
}

TEST(MatmulPack, FiniteScalesAreSeenInPackedRows) {
  int finite = 0, other = 0;
  for (int index = 0; index < kQuantSourceCount; ++index) {
    const Format* format = quant_format_at(index);
    const MatmulKernel& kernel = machine_kernel(format);
    ASSERT_EQ(packed_scales_source(kernel), index) << format->name;
    for (unsigned seed = 0; seed < 100; ++seed) {
      const int64_t rows = 31 + seed % 3, cols = format->block_values;
      auto stored = random_bytes(rows * format->row_bytes(cols), seed);
      // Most rows are zeros: else every matrix has a scale that is not finite.
      const int64_t kept = seed % rows * format->row_bytes(cols);
      std::fill(stored.begin(), stored.begin() + kept, uint8_t{0});
      std::fill(stored.begin() + kept + format->row_bytes(cols), stored.end(), uint8_t{0});
      std::vector<uint8_t> packed(static_cast<size_t>(kernel.packed_bytes(rows, cols)));
      kernel.pack(stored.data(), nullptr, rows, cols, 0, rows, packed.data());
      const bool is_finite = format->find_non_finite(stored.data(), rows * cols) < 0;
      ASSERT_EQ(packed_scales_finite(index, packed.data(), rows, cols), is_finite) << format->name << ", seed " << seed;
      ++(is_finite ? finite : other);
    }
  }
  EXPECT_GT(finite, 0);
  EXPECT_GT(other, 0);
}

TEST(MatmulPack, ValuePanelsMatchTheLayout) {
  struct Case {
    int value_bytes, k_step, lanes;
  };
  for (const auto& [value_bytes, k_step, lanes] :
       {Case{4, 1, 16}, Case{4, 1, 8}, Case{2, 2, 16}, Case{2, 2, 8}, Case{2, 1, 16}, Case{2, 1, 8}}) {
    for (int64_t cols : {1, 7, 32, 33, 64, 101}) {
      const int64_t rows = 2 * lanes + 3, step_bytes = value_bytes * k_step, steps = (cols + k_step - 1) / k_step;
      const auto stored = random_bytes(rows * cols * value_bytes, static_cast<unsigned>(cols));
      std::vector<uint8_t> expected(static_cast<size_t>(3 * lanes * steps * step_bytes));
      std::vector<uint8_t> packed(expected.size(), 0xa5);
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t byte = 0; byte < cols * value_bytes; ++byte) {
          const int64_t panel = row / lanes * lanes * steps * step_bytes;
          const int64_t at = panel + (byte / step_bytes * lanes + row % lanes) * step_bytes + byte % step_bytes;
          expected[static_cast<size_t>(at)] = stored[static_cast<size_t>(row * cols * value_bytes + byte)];
        }
      }
      pack_value_panels(value_bytes, k_step, lanes, stored.data(), rows, cols, 0, rows, packed.data());
      ASSERT_EQ(packed, expected) << value_bytes << " x " << k_step << ", " << lanes << " lanes, " << cols
                                  << " columns";
    }
  }
}

}  // namespace
}  // namespace millrace
#endif
