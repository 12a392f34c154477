#include "kernels/int8_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace millrace {

int64_t int8_matrix_bytes(int64_t rows, int64_t cols) {
  return (rows + kInt8TileRows - 1) / kInt8TileRows * ((cols + 3) / 4) * kInt8TileRows * 4;
}

Result<Int8Matrix> make_int8_matrix(int64_t rows, int64_t cols, float scale) {
  if (cols > kMaxInt8Columns)
    return Error::unsupported(
        fmt::format("int8 matrix: {} columns; sums of more than {} do not fit 32 bits", cols, kMaxInt8Columns));
  Int8Matrix out{rows, cols, scale, {}};
  MILLRACE_TRY(out.packed, AlignedBuffer::allocate(int8_matrix_bytes(rows, cols), "int8 matrices"));
  std::memset(out.packed.data(), 128, static_cast<size_t>(out.packed.bytes()));
  return out;
}

void store_int8_row(int64_t row, const float* values, Int8Matrix& matrix) {
  const int64_t groups = (matrix.cols + 3) / 4;
  uint8_t* const tile = matrix.packed.data() + row / kInt8TileRows * groups * kInt8TileRows * 4;
  const float inverse = matrix.scale > 0 ? 1 / matrix.scale : 0;
  for (int64_t c = 0; c < matrix.cols; ++c) {
    const float level = std::clamp(std::nearbyint(values[c] * inverse), -127.0f, 127.0f);
    tile[(c / 4 * kInt8TileRows + row % kInt8TileRows) * 4 + c % 4] =
        static_cast<uint8_t>(static_cast<int32_t>(level) + 128);
  }
}

const Int8Kernels& int8_kernels([[maybe_unused]] Isa isa) {
  static const Int8Kernels reference = int8_kernels_ref();
#if defined(__x86_64__)
  static const Int8Kernels avx2 = int8_kernels_avx2(), avx512vnni = int8_kernels_avx512vnni();
  if (isa.has(Feature::avx512) && isa.has(Feature::avx512_vnni)) return avx512vnni;
  if (isa.has(Feature::avx2)) return avx2;
#endif
  return reference;
}

}  // namespace millrace
