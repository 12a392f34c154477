#include "models/convert/tensor_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "formats/format.h"
#include "formats/weighted_rounding.h"

namespace millrace {
namespace {

constexpr int64_t kChunkValues = 1 << 16;  // decoded per step and thread

// Values [begin, begin + count) of a llama2.c tensor.
void decode_grouped(const Llama2cTensor& tensor, int64_t begin, int64_t count, float* out) {
  if (tensor.group == 0) {
    std::memcpy(out, tensor.values + begin * 4, static_cast<size_t>(count) * 4);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    float scale;
    std::memcpy(&scale, tensor.scales + (begin + i) / tensor.group * 4, sizeof(scale));
    out[i] = static_cast<float>(static_cast<int8_t>(tensor.values[begin + i])) * scale;
  }
}

void apply_scales(const BlockScales& scales, int64_t row, int64_t cols, float* values) {
  if (scales.values.empty()) return;
  const int64_t across = (cols - 1) / scales.block_cols + 1;
  const float* line = scales.values.data() + row / scales.block_rows * across;
  for (int64_t c = 0; c < cols; ++c) values[c] *= line[c / scales.block_cols];
}

// The number with the fewest bits whose -exp() is `a`, which is at most 0: conversions in both directions then return
// what a folder with rounded numbers held. If there is none, the float nearest to log(-a).
float decay_logarithm(float a) {
  constexpr float kNoDecayLeft = -110.0f;  // exp() of it is 0
  if (a == 0.0f) return kNoDecayLeft;
  const double exact = std::log(-static_cast<double>(a));
  int exponent = 0;
  const double mantissa = std::frexp(exact, &exponent);
  for (int bits = 0; bits < 24; ++bits) {
    const double rounded = std::ldexp(std::nearbyint(std::ldexp(mantissa, bits)), exponent - bits);
    if (static_cast<float>(-std::exp(rounded)) == a) return static_cast<float>(rounded);
  }
  return static_cast<float>(exact);
}

float mapped(float value, SourceTensor::Map map) {
  if (map == SourceTensor::Map::negative_exp) return static_cast<float>(-std::exp(static_cast<double>(value)));
  return map == SourceTensor::Map::log_of_negative ? decay_logarithm(value) : value;
}

}  // namespace

const Format* SourceTensor::plain_format() const {
  const bool plain = stored && !transposed && !changes_values() && stored->scales.values.empty();
  return plain ? stored->tensor.format : nullptr;
}

const Format* SourceTensor::block_format() const {
  const bool scaled = stored && !stored->scales.values.empty() && stored->tensor.format->matrix_limit > 0;
  return scaled && !transposed && !changes_values() ? stored->tensor.format : plain_format();
}

float SourceTensor::matrix_scale(int64_t row) const {
  if (!stored || stored->scales.values.empty() || stored->tensor.format->matrix_limit == 0) return 1;
  return stored->scales.values[static_cast<size_t>((first_row + row) / stored->scales.block_rows)];
}

double SourceTensor::factor_of(int64_t row) const {
  return factors->size() == 1 ? factors->front() : (*factors)[static_cast<size_t>(row)];
}

int64_t SourceTensor::source_row(int64_t row) const {
  if (row_order) return (*row_order)[static_cast<size_t>(row)];
  if (pairs == Pairs::keep) return row;
  const int64_t in_head = row % head_dim;
  if (in_head >= rotated) return row;
  const int64_t half = rotated / 2;
  const int64_t from = pairs == Pairs::to_interleaved
                           ? (in_head % 2) * half + in_head / 2    // 2i, 2i + 1 <- i, i + half
                           : in_head % half * 2 + in_head / half;  // i, i + half <- 2i, 2i + 1
  return row - in_head + from;
}

void SourceTensor::read_rows(int64_t begin, int64_t count, float* out) const {
  if (transposed) {  // a line of the file is a column here
    const Format& format = *stored->tensor.format;
    std::vector<float> line(static_cast<size_t>(rows));
    for (int64_t c = 0; c < cols; ++c) {
      format.decode(stored->tensor.data + (first_row + c) * format.row_bytes(rows), line.data(), rows);
      apply_scales(stored->scales, first_row + c, rows, line.data());
      for (int64_t r = 0; r < count; ++r) out[r * cols + c] = line[static_cast<size_t>(source_row(begin + r))] + offset;
    }
    return;
  }
  for (int64_t r = 0; r < count; ++r) {
    const int64_t row = source_row(begin + r);
    float* to = out + r * cols;
    if (values) {
      std::copy_n(values->data() + (first_row + row) * cols, cols, to);
    } else if (grouped) {
      decode_grouped(*grouped, (first_row + row) * cols, cols, to);
    } else {
      const Format& format = *stored->tensor.format;
      format.decode(stored->tensor.data + (first_row + row) * format.row_bytes(cols), to, cols);
      apply_scales(stored->scales, first_row + row, cols, to);
    }
    if (offset != 0.0f)
      for (int64_t c = 0; c < cols; ++c) to[c] += offset;
    if (map != Map::keep)
      for (int64_t c = 0; c < cols; ++c) to[c] = mapped(to[c], map);
    if (factors)
      for (int64_t c = 0; c < cols; ++c) to[c] = static_cast<float>(static_cast<double>(to[c]) * factor_of(row));
    if (!col_order) continue;
    const std::vector<float> line(to, to + cols);
    for (int64_t c = 0; c < cols; ++c) to[c] = line[static_cast<size_t>((*col_order)[static_cast<size_t>(c)])];
  }
}

Result<void> SourceTensor::check_finite() const {
  // llama2.c files were checked at loading. A stack is checked with its first expert; positions may begin behind rows
  // that are dropped.
  if (stored && first_row < (transposed ? cols : rows)) MILLRACE_TRY_VOID(check_tensor_finite(*files, *stored));
  if (map != Map::log_of_negative) return {};
  SourceTensor plain = *this;
  plain.map = Map::keep;
  std::vector<float> all(static_cast<size_t>(rows * cols));
  plain.read_rows(0, rows, all.data());
  for (const float value : all)
    if (!(value <= 0.0f))
      return Error::corrupt(
          fmt::format("{}: tensor {}: a decay rate of {}; all must be at most 0", files->path, stored->name, value));
  return {};
}

// Reports a value that the source can represent and the new format cannot.
Result<void> OutputTensor::check_overflow(const uint8_t* encoded) const {
  if (!format->find_non_finite || parts.front().plain_format() == format) return {};
  const int64_t values = bytes() / format->block_bytes * format->block_values;
  if (format->find_non_finite(encoded, values) < 0) return {};
  return Error::unsupported(
      fmt::format("tensor {}: a value is too large for {}; choose bf16 or f32", name, format->name));
}

int64_t OutputTensor::bytes() const {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < dims.size(); ++i) rows *= dims[i];
  return rows * format->row_bytes(dims.back());
}

float OutputTensor::scale_of(int64_t index) const {
  return scales.empty() ? 1.0f : scales[static_cast<size_t>(index / dims[dims.size() - 2])];
}

bool OutputTensor::copies(const SourceTensor& part, int64_t before) const {
  if (part.block_format() != format) return false;
  for (int64_t row = 0; row < part.rows && format->matrix_limit > 0; ++row)
    if (part.matrix_scale(row) != scale_of(before + row)) return false;
  return true;
}

void OutputTensor::encode_row(int64_t index, const float* values, int64_t cols, uint8_t* destination) const {
  if (weights.empty()) return format->encode(values, destination, cols);
  const int64_t expert = dims.size() > 2 ? index / dims[dims.size() - 2] : 0;
  encode_weighted(*format, values, weights.data() + expert * cols, destination, cols);
}

Result<void> OutputTensor::produce(uint8_t* destination, ThreadPool& pool) const {
  for (const SourceTensor& part : parts) MILLRACE_TRY_VOID(part.check_finite());
  if (transpose) {
    const SourceTensor& part = parts.front();
    std::vector<float> all(static_cast<size_t>(part.rows * part.cols));
    part.read_rows(0, part.rows, all.data());
    pool.parallel_for(part.cols, [&](int64_t c, int) {
      std::vector<float> line(static_cast<size_t>(part.rows));
      for (int64_t r = 0; r < part.rows; ++r)
        line[static_cast<size_t>(r)] = all[static_cast<size_t>(r * part.cols + c)];
      format->encode(line.data(), destination + c * format->row_bytes(part.rows), part.rows);
    });
    return check_overflow(destination);
  }
  uint8_t* const whole = destination;
  int64_t before = 0;  // rows of earlier parts
  for (const SourceTensor& part : parts) {
    const int64_t row_bytes = format->row_bytes(part.cols);
    const int64_t chunk = part.transposed ? part.rows : std::max<int64_t>(1, kChunkValues / part.cols);
    const bool copy = copies(part, before);
    pool.parallel_for((part.rows + chunk - 1) / chunk, [&](int64_t i, int) {
      const int64_t begin = i * chunk, count = std::min(chunk, part.rows - begin);
      if (copy) {
        for (int64_t r = begin; r < begin + count; ++r) {
          const int64_t from = part.first_row + part.source_row(r);
          std::memcpy(destination + r * row_bytes, part.stored->tensor.data + from * row_bytes,
                      static_cast<size_t>(row_bytes));
        }
        return;
      }
      std::vector<float> rows(static_cast<size_t>(count * part.cols));
      part.read_rows(begin, count, rows.data());
      for (int64_t r = 0; r < count && !scales.empty(); ++r)
        for (int64_t c = 0; c < part.cols; ++c) rows[r * part.cols + c] /= scale_of(before + begin + r);
      for (int64_t r = 0; r < count; ++r)
        encode_row(before + begin + r, rows.data() + r * part.cols, part.cols, destination + (begin + r) * row_bytes);
    });
    destination += part.rows * row_bytes;
    before += part.rows;
  }
  return check_overflow(whole);
}

}  // namespace millrace
