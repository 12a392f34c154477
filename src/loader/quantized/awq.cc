// AWQ checkpoints (Lin et al., 2023, AWQ: Activation-aware Weight Quantization for LLM Compression and Acceleration),
// as AutoAWQ's "gemm" layout stores them, 4 bits. Of a matrix with `in` columns and `out` rows, in I32 words:
//
//   qweight [in, out / 8]       levels, packed along the rows of the matrix; in a word, from the lowest bits on, those
//   qzeros  [groups, out / 8]   of rows 0, 2, 4, 6, 1, 3, 5, 7
//   scales  [groups, out]
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/ordered_json.h"
#include "loader/quantized/methods.h"

namespace millrace {
namespace {

constexpr int kPlace[] = {0, 4, 1, 5, 2, 6, 3, 7};  // of a row of eight, in its word

int nibble(const uint8_t* words, int64_t row) {
  uint32_t word;
  std::memcpy(&word, words + row / 8 * 4, sizeof(word));
  return static_cast<int>(word >> (4 * kPlace[row % 8]) & 15);
}

}  // namespace

Result<Levels> read_awq(const QuantizedTensors& tensors, const nlohmann::ordered_json& config) {
  const auto bits = config.find("bits");
  const auto version = config.find("version");
  if (bits != config.end() && *bits != 4)
    return Error::unsupported("config.json: key 'quantization_config.bits': must be 4 for awq");
  if (version != config.end() && *version != "gemm" && *version != "GEMM")
    return Error::unsupported(
        "config.json: key 'quantization_config.version': only AutoAWQ's layout 'gemm' can be read");
  MILLRACE_TRY(const StoredTensor* words, tensors.matrix("qweight", "I32", -1, -1));
  const int64_t cols = words->tensor.rows(), rows = words->tensor.cols() * 8;
  MILLRACE_TRY(const StoredTensor* zeros, tensors.matrix("qzeros", "I32", -1, rows / 8));
  const int64_t groups = zeros->tensor.rows();
  if (cols % groups != 0) return tensors.wrong(*zeros, fmt::format("{} groups do not divide {} columns", groups, cols));
  MILLRACE_TRY(const std::vector<float> by_group, tensors.numbers("scales", groups, rows));

  Levels out{.rows = rows, .cols = cols, .group = cols / groups, .low = 0, .high = 15};
  out.scales.resize(by_group.size());
  auto zero = std::make_shared<std::vector<int16_t>>(by_group.size());  // [rows, groups]
  int least = 15;
  for (int64_t group = 0; group < groups; ++group)
    for (int64_t row = 0; row < rows; ++row) {
      const auto at = static_cast<size_t>(row * groups + group);
      out.scales[at] = by_group[static_cast<size_t>(group * rows + row)];
      const int point = nibble(zeros->tensor.data + group * rows / 2, row);
      (*zero)[at] = static_cast<int16_t>(point);
      out.low = std::min(out.low, -point);
      least = std::min(least, point);
    }
  out.high = 15 - least;
  out.read = [=, data = words->tensor.data, group = out.group](int64_t row, int64_t first, int64_t count,
                                                               int16_t* levels) {
    for (int64_t i = 0; i < count; ++i)
      levels[i] = static_cast<int16_t>(nibble(data + (first + i) * rows / 2, row) -
                                       (*zero)[static_cast<size_t>(row * groups + (first + i) / group)]);
  };
  return out;
}

}  // namespace millrace
