#include "compress/rounding/outlier_columns.h"

#include <utility>

namespace millrace {

void set_outlier_columns(PassMatrix& matrix, const std::vector<int32_t>& columns, const Format& format) {
  if (columns.empty()) return;
  PassParts& parts = matrix.parts;
  const int64_t count = std::ssize(columns);
  parts.columns = columns;
  parts.column_format = &format;
  parts.column_weights.resize(static_cast<size_t>(matrix.rows * count));
  parts.input.scale.assign(static_cast<size_t>(matrix.cols), 1.0f);
  for (int32_t c : columns) parts.input.scale[static_cast<size_t>(c)] = 0;
  std::vector<uint8_t> stored(static_cast<size_t>(format.row_bytes(count)));
  for (int64_t r = 0; r < matrix.rows; ++r) {
    float* own = parts.column_weights.data() + r * count;
    for (int64_t i = 0; i < count; ++i)
      own[i] =
          std::exchange(matrix.values[static_cast<size_t>(r * matrix.cols + columns[static_cast<size_t>(i)])], 0.0f);
    format.encode(own, stored.data(), count);
    format.decode(stored.data(), own, count);
  }
}

}  // namespace millrace
