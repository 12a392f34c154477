// Writes a copy of a GGUF file in which some matrices have weight parts. For tests.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/philox.h"
#include "base/thread_pool.h"
#include "formats/format.h"
#include "models/convert/conversion.h"

namespace millrace::testing {

struct WrittenPart {
  std::vector<int64_t> dims;
  std::vector<float> values;
  const Format* format = nullptr;  // format of `bytes`, which then are stored in place of values
  std::vector<uint8_t> bytes = {};
};
using PartTensors = std::map<std::string, WrittenPart>;

// Numbers between -scale and scale, a function of the name.
inline std::vector<float> part_values(const std::string& name, int64_t count, double scale) {
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i)
    out.push_back(static_cast<float>(
        scale * (2 * philox_uniform(std::hash<std::string>()(name), 1, static_cast<uint64_t>(i)) - 1)));
  return out;
}

inline void add_scale(PartTensors& to, const std::string& matrix, int64_t cols) {
  to[matrix + ".input_scale"] = {{cols}, part_values(matrix + "scale", cols, 2)};
}
inline void add_hadamard(PartTensors& to, const std::string& matrix, int64_t block) {
  to[matrix + ".input_hadamard"] = {{1}, {static_cast<float>(block)}};
}
inline void add_order(PartTensors& to, const std::string& matrix, int64_t cols) {
  std::vector<std::pair<float, float>> keys;
  const auto random = part_values(matrix + "order", cols, 1);
  for (int64_t c = 0; c < cols; ++c) keys.emplace_back(random[static_cast<size_t>(c)], static_cast<float>(c));
  std::ranges::sort(keys);
  WrittenPart& tensor = to[matrix + ".input_order"];
  tensor.dims = {cols};
  for (const auto& [key, column] : keys) tensor.values.push_back(column);
}
inline void add_low_rank(PartTensors& to, const std::string& matrix, int64_t rows, int64_t cols, int64_t rank) {
  to[matrix + ".low_rank_a"] = {{rank, cols}, part_values(matrix + "a", rank * cols, 0.2)};
  to[matrix + ".low_rank_b"] = {{rows, rank}, part_values(matrix + "b", rows * rank, 0.2)};
}
// In place of the matrix.
inline void add_factored(PartTensors& to, const std::string& matrix, int64_t rows, int64_t cols, int64_t rank) {
  add_low_rank(to, matrix, rows, cols, rank);
  to[matrix + ".weight"] = {};
}
inline void add_bias(PartTensors& to, const std::string& matrix, int64_t rows) {
  to[matrix + ".output_bias"] = {{rows}, part_values(matrix + "bias", rows, 1)};
}
// Every `step`-th value of the matrix; some rows may have none.
inline void add_sparse(PartTensors& to, const std::string& matrix, int64_t rows, int64_t cols, int64_t step) {
  WrittenPart counts{{rows}, std::vector<float>(static_cast<size_t>(rows))}, columns;
  for (int64_t at = 3; at < rows * cols; at += step) {
    ++counts.values[static_cast<size_t>(at / cols)];
    columns.values.push_back(static_cast<float>(at % cols));
  }
  const int64_t n = std::ssize(columns.values);
  columns.dims = {n};
  to[matrix + ".sparse_counts"] = counts;
  to[matrix + ".sparse_columns"] = columns;
  to[matrix + ".sparse_values"] = {{n}, part_values(matrix + "sparse", n, 1)};
}

// A shift of the input, with a bias that does not make up for it.
inline void add_shift(PartTensors& to, const std::string& matrix, int64_t rows, int64_t cols) {
  to[matrix + ".input_shift"] = {{cols}, part_values(matrix + "shift", cols, 0.5)};
  to[matrix + ".output_bias"] = {{rows}, part_values(matrix + "bias", rows, 0.5)};
}
inline void add_output_change(PartTensors& to, const std::string& matrix, int64_t rows, int64_t block) {
  to[matrix + ".output_hadamard"] = {{1}, {static_cast<float>(block)}};
  to[matrix + ".output_scale"] = {{rows}, part_values(matrix + "output", rows, 2)};
}
// Every fifth input.
inline void add_columns(PartTensors& to, const std::string& matrix, int64_t rows, int64_t cols) {
  WrittenPart& index = to[matrix + ".column_index"];
  for (int64_t c = 2; c < cols; c += 5) index.values.push_back(static_cast<float>(c));
  const int64_t n = std::ssize(index.values);
  index.dims = {n};
  to[matrix + ".column_weights"] = {{rows, n}, part_values(matrix + "columns", rows * n, 0.3)};
}
// int8 in two segments, the first with groups.
inline void add_format(PartTensors& to, const std::string& matrix, int64_t cols) {
  const auto first = static_cast<float>(cols / 2), second = static_cast<float>(cols - cols / 2);
  to[matrix + ".input_format"] = {{2, 5}, {first, 0, 7, 10, 0.9f, second, 0, 7, second, 1}};
}

// Parts named as a matrix take its place; without dims, it is left out. A temporary file; deleted with the object.
class PartedModel {
 public:
  PartedModel(const std::string& base, const PartTensors& parts) {
    static int count = 0;
    path_ = (std::filesystem::temp_directory_path() /
             ("millrace_parts." + std::to_string(::getpid()) + "." + std::to_string(count++) + ".gguf"))
                .string();
    auto input = open_conversion_input(base, "");
    EXPECT_TRUE(input.ok()) << (input.ok() ? "" : input.error().message);
    ConvertReport report;
    auto plan = plan_conversion(*input, true, {}, report);
    EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.error().message);
    ThreadPool pool(1);
    for (const OutputTensor& tensor : plan->tensors)
      if (!parts.contains(tensor.name))
        plan->writer.add_tensor(tensor.name, tensor.format, tensor.dims,
                                [&](uint8_t* to, int64_t) { return tensor.produce(to, pool); });
    for (const auto& [name, tensor] : parts)
      if (!tensor.dims.empty())
        plan->writer.add_tensor(name, tensor.format ? tensor.format : find_format("f32"), tensor.dims,
                                [&](uint8_t* to, int64_t) -> Result<void> {
                                  if (tensor.format)
                                    std::ranges::copy(tensor.bytes, to);
                                  else
                                    std::ranges::copy(tensor.values, reinterpret_cast<float*>(to));
                                  return {};
                                });
    auto written = plan->writer.write(path_);
    EXPECT_TRUE(written.ok()) << (written.ok() ? "" : written.error().message);
  }
  ~PartedModel() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  PartedModel(const PartedModel&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace millrace::testing
