// Fills the panels described in matmul_pack.h. Runs once at load, on all threads (each packs its own panels).
#include "kernels/x86/matmul_pack.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace millrace {
namespace {

// Spreads the 32 levels of one row's group over the planes. Four levels (one lane of one W[j]) move as one word.
void place_levels(const QuantShape& shape, const QuantCell& cell, const uint8_t* level, int lane, uint8_t* planes) {
  uint32_t low_mask = 0x01010101u * ((1u << shape.low_bits) - 1);
  uint32_t high_mask = 0x01010101u * ((1u << shape.high_bits) - 1);
  auto merge = [&](int plane, uint32_t bits) {
    uint8_t* at = planes + plane * cell.plane_bytes + lane * 4;
    uint32_t word;
    std::memcpy(&word, at, 4);
    word |= bits;
    std::memcpy(at, &word, 4);
  };
  for (int j = 0; j < 8; ++j) {
    uint32_t word;
    std::memcpy(&word, level + 4 * j, 4);
    merge(j % shape.low_bits, (word & low_mask) << (j / shape.low_bits * shape.low_bits));
    if (shape.high_bits != 0) {
      uint32_t high = (word >> shape.low_bits) & high_mask;
      merge(shape.low_bits + j % shape.high_bits, high << (j / shape.high_bits * shape.high_bits));
    }
  }
}

// Puts one sub-scale or sub-minimum of a row into its cell (`out`, zero before).
void place_field(const QuantShape& shape, const QuantCell& cell, int field, int value, int lane, uint8_t* out) {
  auto merge = [&](int64_t at, int bits) { out[at] = static_cast<uint8_t>(out[at] | bits); };
  if (shape.sub_bits == 8) return merge(cell.field_at + field * kPanelRows + lane, value & 255);
  merge(cell.field_at + field / 2 * kPanelRows + lane, (value & 15) << (field % 2 * 4));
  if (shape.sub_bits == 6) merge(cell.high_field_at + field / 4 * kPanelRows + lane, (value >> 4) << (field % 4 * 2));
}

// Puts one block into its cell; `group` is the block's first group within the cell.
void place_block(const QuantShape& shape, const QuantCell& cell, const QuantBlock& block, int lane, int64_t group,
                 uint8_t* out) {
  for (int g = 0; g < shape.groups; ++g) {
    place_levels(shape, cell, block.level + g * 32, lane, out + (group + g) * cell.group_bytes);
  }
  int64_t scale = (shape.per_group_scale() ? group : 0) * kPanelRows + lane;
  if (shape.e8m0) {
    out[cell.scale_at + scale] = static_cast<uint8_t>(block.d);
  } else {
    std::memcpy(out + cell.scale_at + scale * 2, &block.d, 2);
  }
  if (shape.has_min) std::memcpy(out + cell.min_at + scale * 2, &block.min, 2);
  for (int i = 0; i < shape.sub_count(); ++i) {
    place_field(shape, cell, sub_field(shape, i, false), block.scale[i] + shape.sub_bias, lane, out);
    if (shape.has_min) place_field(shape, cell, sub_field(shape, i, true), block.minimum[i], lane, out);
  }
}

// Where column k (0..3) of a lane sits in an FP8 quad. AVX2: column after column. AVX-512: each 128-bit part holds four
// rows' first pairs, then their second pairs, so that byte unpacking leaves every row in its own lane.
int quad_byte(int lanes, int lane, int k) {
  if (lanes == 16) return lane / 4 * 16 + k / 2 * 8 + lane % 4 * 2 + k % 2;
  return k * lanes + lane;
}

}  // namespace

const Format* float_format(const char* name, Activation activation) {
  const Format* format = find_format(name);
  return format != nullptr && format->activation == activation ? format : nullptr;
}

void pack_quant_panels(const QuantSource& source, const uint8_t* stored, int64_t rows, int64_t cols, int64_t row_begin,
                       int64_t row_end, uint8_t* packed) {
  const QuantShape& shape = source.shape;
  const Format* format = find_format(source.format);
  QuantCell cell = quant_cell(shape);
  int64_t panel_bytes = quant_panel_bytes(cell, cols);
  int64_t row_bytes = format->row_bytes(cols);
  int64_t blocks = cols / format->block_values;
  int64_t blocks_a_cell = cell.groups / shape.groups;
  QuantBlock block;
  for (int64_t first = row_begin; first < row_end; first += kPanelRows) {
    uint8_t* panel = packed + first / kPanelRows * panel_bytes;
    std::memset(panel, 0, static_cast<size_t>(panel_bytes));
    int count = static_cast<int>(std::min(kPanelRows, rows - first));
    for (int64_t b = 0; b < blocks; ++b) {
      uint8_t* out = panel + b / blocks_a_cell * cell.bytes;
      for (int lane = 0; lane < count; ++lane) {
        source.split(stored + (first + lane) * row_bytes + b * format->block_bytes, block);
        place_block(shape, cell, block, lane, b % blocks_a_cell * shape.groups, out);
      }
    }
  }
}

void pack_value_panels(int value_bytes, int k_step, int lanes, const uint8_t* stored, int64_t rows, int64_t cols,
                       int64_t row_begin, int64_t row_end, uint8_t* packed) {
  int64_t steps = (cols + k_step - 1) / k_step;
  int64_t step_bytes = static_cast<int64_t>(value_bytes) * k_step;
  int64_t panel_bytes = steps * step_bytes * lanes;
  int64_t row_bytes = cols * value_bytes;
  for (int64_t first = row_begin; first < row_end; first += lanes) {
    uint8_t* panel = packed + first / lanes * panel_bytes;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      uint8_t* out = panel + lane * step_bytes;
      bool present = first + lane < rows;
      const uint8_t* row = stored + (present ? (first + lane) * row_bytes : 0);
      for (int64_t s = 0; s < steps; ++s, out += lanes * step_bytes) {
        int64_t here = present ? std::min(step_bytes, row_bytes - s * step_bytes) : 0;
        std::memset(out, 0, static_cast<size_t>(step_bytes));
        std::memcpy(out, row + s * step_bytes, static_cast<size_t>(here));
      }
    }
  }
}

void pack_f8_panels(int lanes, const uint8_t* stored, const BlockScales* scales, int64_t rows, int64_t cols,
                    int64_t row_begin, int64_t row_end, uint8_t* packed) {
  int64_t folds = fold_count(cols);
  int64_t fold_bytes = f8_fold_bytes(lanes);
  for (int64_t first = row_begin; first < row_end; first += lanes) {
    uint8_t* panel = packed + first / lanes * folds * fold_bytes;
    std::memset(panel, 0, static_cast<size_t>(folds * fold_bytes));
    int count = static_cast<int>(std::min<int64_t>(lanes, rows - first));
    for (int lane = 0; lane < count; ++lane) {
      const uint8_t* row = stored + (first + lane) * cols;
      for (int64_t fold = 0; fold < folds; ++fold) {
        uint8_t* out = panel + fold * fold_bytes;
        int64_t begin = fold * kFoldColumns;
        int64_t here = std::min(kFoldColumns, cols - begin);
        float scale = fold_scale(scales, cols, first + lane, fold);
        for (int64_t k = 0; k < here; ++k) {
          uint8_t code = row[begin + k];
          out[k / 4 * 4 * lanes + quad_byte(lanes, lane, static_cast<int>(k % 4))] = code;
          if ((code & 0x7f) == 0x7f) scale = std::numeric_limits<float>::quiet_NaN();  // so that decoders need not look
        }
        std::memcpy(out + kFoldColumns * lanes + lane * 4, &scale, 4);
      }
    }
  }
}

}  // namespace millrace
