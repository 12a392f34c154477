#include "models/convert/matrix_scales.h"

#include <algorithm>
#include <cmath>

#include "formats/format.h"

namespace millrace {
namespace {

constexpr float kMinScale = 0x1p-100f;

bool is_table(const std::string& name) {
  return name == "token_embd.weight" || name == "position_embd.weight" || name == "per_layer_token_embd.weight";
}

// Rows [begin, end) of one part of a tensor.
struct Rows {
  const SourceTensor* part = nullptr;
  int64_t begin = 0, end = 0;
};

// Of one expert, or of a tensor that is no stack.
std::vector<Rows> rows_of(const OutputTensor& tensor, int64_t expert) {
  const int64_t rows = tensor.dims[tensor.dims.size() - 2], first = expert * rows;
  std::vector<Rows> out;
  int64_t before = 0;
  for (const SourceTensor& part : tensor.parts) {
    const int64_t begin = std::max(first, before), end = std::min(first + rows, before + part.rows);
    if (begin < end) out.push_back({&part, begin - before, end - before});
    before += part.rows;
  }
  return out;
}

// NaN and infinity are reported when the tensor is produced.
float largest_of(const Rows& rows, ThreadPool& pool) {
  const SourceTensor& part = *rows.part;
  const int64_t count = rows.end - rows.begin;
  const int64_t chunk = part.transposed ? count : std::max<int64_t>(1, (1 << 16) / part.cols);
  std::vector<float> largest(static_cast<size_t>((count + chunk - 1) / chunk));
  pool.parallel_for(std::ssize(largest), [&](int64_t i, int) {
    const int64_t read = std::min(chunk, count - i * chunk);
    std::vector<float> values(static_cast<size_t>(read * part.cols));
    part.read_rows(rows.begin + i * chunk, read, values.data());
    float& of_chunk = largest[static_cast<size_t>(i)];
    for (float value : values)
      if (std::isfinite(value)) of_chunk = std::max(of_chunk, std::fabs(value));
  });
  return *std::ranges::max_element(largest);
}

float scale_of(const std::vector<Rows>& all, const Format& format, ThreadPool& pool) {
  const float first = all.front().part->matrix_scale(all.front().begin);
  const bool copied = std::ranges::all_of(all, [&](const Rows& rows) {
    return rows.part->block_format() == &format && rows.part->matrix_scale(rows.begin) == first;
  });
  if (copied) return first;
  float largest = 0;
  for (const Rows& rows : all) largest = std::max(largest, largest_of(rows, pool));
  const float scale = largest / format.matrix_limit;
  return scale >= kMinScale ? scale : 1.0f;
}

OutputTensor tensor_of(const std::string& matrix, const std::vector<float>& scales) {
  constexpr std::string_view kWeight = "weight";
  SourceTensor source;
  source.name = matrix.substr(0, matrix.size() - kWeight.size()) + "scale";
  source.is_vector = true;
  source.rows = 1;
  source.cols = std::ssize(scales);
  source.values = std::make_shared<const std::vector<float>>(scales);
  OutputTensor out;
  out.name = source.name;
  out.format = find_format("f32");
  out.dims = {source.cols};
  out.parts.push_back(std::move(source));
  return out;
}

}  // namespace

void scale_matrices(std::vector<OutputTensor>& tensors, ThreadPool& pool, const std::function<bool(size_t)>& takes) {
  std::vector<OutputTensor> added;
  for (size_t i = 0; i < tensors.size(); ++i) {
    OutputTensor& tensor = tensors[i];
    const bool has_one = tensor.format->matrix_limit > 0 && tensor.dims.size() > 1 && !is_table(tensor.name) &&
                         tensor.name.ends_with(".weight");
    if (!has_one || !takes(i)) continue;
    for (int64_t expert = 0; expert < tensor.experts(); ++expert)
      tensor.scales.push_back(scale_of(rows_of(tensor, expert), *tensor.format, pool));
    added.push_back(tensor_of(tensor.name, tensor.scales));
  }
  std::ranges::move(added, std::back_inserter(tensors));
}

}  // namespace millrace
