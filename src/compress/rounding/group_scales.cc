#include "compress/rounding/group_scales.h"

#include <algorithm>
#include <array>

#include "compress/rounding/level_grid.h"

namespace millrace {
namespace {

constexpr int64_t kSharedBlock = 32;

void round_shared_group(const Format& format, const float* values, int64_t count, LevelGrid& grid, uint8_t* out) {
  const auto [least, most] = std::minmax_element(values, values + count);
  std::array<float, kSharedBlock> ends;
  ends.fill(*least);
  ends.back() = *most;
  format.encode(ends.data(), out, kSharedBlock);
  grid.read(out);
  for (int64_t first = 0; first < count; first += kSharedBlock) {
    uint8_t* block = out + first / kSharedBlock * format.block_bytes;
    if (first > 0) std::copy_n(out, format.block_bytes, block);
    for (int i = 0; i < kSharedBlock; ++i) format.set_level(block, i, grid.nearest(i, values[first + i]));
  }
}

}  // namespace

bool can_share_scales(const Format& format) {
  for (const char* name : {"q8_0", "q4_0", "q4_1", "q5_0", "q5_1"})
    if (format.name == name) return true;
  return false;
}

void round_in_groups(PassMatrix& matrix, int64_t group, ThreadPool& pool) {
  const Format& format = *matrix.format;
  const int64_t cols = matrix.cols, row_bytes = format.row_bytes(cols);
  if (group == 0) group = cols;
  matrix.encoded.resize(static_cast<size_t>(matrix.rows * row_bytes));
  pool.parallel_for(matrix.rows, [&](int64_t r, int) {
    LevelGrid grid(format);
    for (int64_t first = 0; first < cols; first += group)
      round_shared_group(format, matrix.values.data() + r * cols + first, std::min(group, cols - first), grid,
                         matrix.encoded.data() + r * row_bytes + first / kSharedBlock * format.block_bytes);
  });
}

}  // namespace millrace
