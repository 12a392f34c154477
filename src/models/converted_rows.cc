#include "models/converted_rows.h"

#include <fmt/format.h>

#include <vector>

#include "kernels/kernel_table.h"

namespace millrace {
namespace {

// Writes rows [begin, end) of a matrix whose transpose is stored to `out` [end - begin, cols].
void decode_columns(const Weight& stored, int64_t begin, int64_t end, float* out) {
  const Format& format = *stored.column_format;
  const int64_t first = begin / format.block_values, last = (end + format.block_values - 1) / format.block_values;
  const int64_t skipped = begin - first * format.block_values;
  std::vector<float> column(static_cast<size_t>((last - first) * format.block_values));  // whole blocks
  for (int64_t c = 0; c < stored.cols; ++c) {
    format.decode(stored.data + c * stored.column_stride + first * format.block_bytes, column.data(),
                  std::ssize(column));
    for (int64_t r = 0; r < end - begin; ++r) out[r * stored.cols + c] = column[static_cast<size_t>(skipped + r)];
  }
}

float scale_of(const BlockScales& scales, int64_t row, int64_t col, int64_t cols) {
  if (scales.values.size() == 1) return scales.values.front();
  const int64_t across = (cols - 1) / scales.block_cols + 1;
  return scales.values[static_cast<size_t>(row / scales.block_rows * across + col / scales.block_cols)];
}

// Writes rows [begin, end) to `out` [end - begin, cols].
void decode_rows(const Weight& stored, int64_t begin, int64_t end, float* out) {
  if (stored.column_format) return decode_columns(stored, begin, end, out);
  const int64_t row_bytes = stored.format->row_bytes(stored.cols);
  for (int64_t r = begin; r < end; ++r, out += stored.cols) {
    stored.format->decode(stored.data + r * row_bytes, out, stored.cols);
    for (int64_t c = 0; !stored.scales.values.empty() && c < stored.cols; ++c)
      out[c] *= scale_of(stored.scales, r, c, stored.cols);
  }
}

}  // namespace

Result<void> check_convertible(const Weight& stored, const Format& to) {
  const auto refuse = [&](const char* why) {
    return Error::unsupported(fmt::format("tensor {} {}, and cannot become {}", stored.name, why, to.name));
  };
  if (stored.codebook) return refuse("has a codebook");
  if (stored.parts) return refuse("has weight parts");
  if (stored.column_format && !stored.scales.values.empty()) return refuse("is stored transposed, with scales");
  if (!to.encode) return Error::unsupported(fmt::format("{}: no values can be rounded to this format", to.name));
  if (to.matrix_limit > 0)
    return Error::unsupported(fmt::format("{}: the format has a scale for each matrix; choose another one", to.name));
  if (stored.cols % to.block_values != 0)
    return Error::unsupported(
        fmt::format("tensor {} has {} columns, not whole blocks of {} ({}); choose another format", stored.name,
                    stored.cols, to.block_values, to.name));
  return {};
}

void pack_converted_rows(const Weight& stored, const Weight& weight, int64_t begin, int64_t end, uint8_t* packed) {
  const Format& format = *weight.format;
  const int64_t rows = end - begin, cols = weight.cols, row_bytes = format.row_bytes(cols);
  std::vector<float> values(static_cast<size_t>(rows * cols));
  decode_rows(stored, begin, end, values.data());
  std::vector<uint8_t> encoded(static_cast<size_t>(rows * row_bytes));
  for (int64_t r = 0; r < rows; ++r) format.encode(values.data() + r * cols, encoded.data() + r * row_bytes, cols);
  weight.kernel->pack(encoded.data(), nullptr, rows, cols, 0, rows, packed + weight.kernel->packed_bytes(begin, cols));
}

}  // namespace millrace
