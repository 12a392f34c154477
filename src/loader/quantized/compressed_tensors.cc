// Checkpoints of the compressed-tensors library with integer weights. Of a [rows, cols] matrix:
//
//   pack-quantized   weight_packed [rows, words of 32 / bits levels] I32, levels raised by 2^(bits - 1)
//                    weight_shape [2]
//   int-quantized    weight [rows, cols] I8
//   both             weight_scale [rows, groups], [rows, 1] or [1]
//                    weight_zero_point of the same shape, I8; pack-quantized: packed along the rows, I32; without it 0
//
// What the library rounds activations to is left out: inputs are rounded as for every format of integers.
#include <fmt/format.h>

#include <cstring>
#include <memory>

#include "base/ordered_json.h"
#include "loader/quantized/methods.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

// The bits of the matrix's group: the groups of a file with several sizes are told apart by what fits.
Result<int> packed_size(const QuantizedTensors& tensors, const Json& config, const StoredTensor& words, int64_t cols) {
  const auto groups = config.find("config_groups");
  if (groups != config.end() && groups->is_object()) {
    for (const auto& [name, group] : groups->items()) {
      if (!group.is_object() || !group.contains("weights") || !group["weights"].is_object()) continue;
      const auto bits = group["weights"].find("num_bits");
      if (bits == group["weights"].end() || !bits->is_number_unsigned()) continue;
      const uint64_t given = bits->get<uint64_t>();
      if (given < 2 || given > 8) continue;
      const auto per_word = static_cast<int64_t>(32 / given);
      if (words.tensor.cols() == (cols + per_word - 1) / per_word) return static_cast<int>(given);
    }
  }
  return tensors.wrong(
      words, fmt::format("{} words a row fit {} columns with no num_bits of config.json", words.tensor.cols(), cols));
}

// [rows, groups], of which a tensor or row may have one in common. Sets the group.
Result<std::vector<float>> spread_scales(const QuantizedTensors& tensors, Levels& out) {
  const StoredTensor* stored = tensors.find("weight_scale");
  const int64_t have = stored ? stored->tensor.values() : 0;
  const int64_t groups = have == 1 ? 1 : have / out.rows;
  if (have != 1 && (groups < 1 || have % out.rows != 0 || out.cols % groups != 0)) {
    if (stored)
      return tensors.wrong(*stored, fmt::format("{} scales do not fit a {} x {} matrix", have, out.rows, out.cols));
    return Error::corrupt(fmt::format("tensor {}weight_scale is missing", tensors.prefix()));
  }
  out.group = out.cols / groups;
  MILLRACE_TRY(std::vector<float> scales, tensors.numbers("weight_scale", have == 1 ? 1 : out.rows, groups));
  if (have == 1) scales.resize(static_cast<size_t>(out.rows), scales.front());
  return scales;
}

}  // namespace

Result<Levels> read_compressed_tensors(const QuantizedTensors& tensors, const Json& config) {
  const bool packed = tensors.find("weight_packed") != nullptr;
  MILLRACE_TRY(const StoredTensor* stored,
               packed ? tensors.matrix("weight_packed", "I32", -1, -1) : tensors.matrix("weight", "I8", -1, -1));
  Levels out{.rows = stored->tensor.rows(), .cols = stored->tensor.cols()};
  int bits = 8;
  if (packed) {
    MILLRACE_TRY(const auto shape, tensors.integers("weight_shape", 2, INT32_MAX));
    if (shape[0] != out.rows || shape[1] < 1 || shape[1] > 16 * stored->tensor.cols())
      return tensors.wrong(*stored, fmt::format("weight_shape {} x {} does not fit its {} x {} words", shape[0],
                                                shape[1], out.rows, out.cols));
    out.cols = shape[1];
    MILLRACE_TRY(bits, packed_size(tensors, config, *stored, out.cols));
  }
  if (tensors.find("weight_g_idx"))
    return Error::unsupported(fmt::format(
        "tensor {}weight_g_idx: columns in the order of their activations cannot be read", tensors.prefix()));
  MILLRACE_TRY(out.scales, spread_scales(tensors, out));
  const int64_t groups = out.cols / out.group, per_word = 32 / bits;
  const int middle = packed ? 1 << (bits - 1) : 0;
  out.low = -(1 << (bits - 1));
  out.high = (1 << (bits - 1)) - 1;
  auto zero = std::make_shared<std::vector<int16_t>>();  // [rows, groups], signed; empty: all 0
  if (const StoredTensor* points = tensors.find("weight_zero_point")) {
    const bool in_words = packed && points->type_name == "I32";
    const int64_t lines = in_words ? (out.rows + per_word - 1) / per_word : out.rows;
    MILLRACE_TRY_VOID(tensors.matrix("weight_zero_point", in_words ? "I32" : "I8", lines, groups));
    zero->resize(out.scales.size());
    int least = 0, most = 0;
    for (int64_t row = 0; row < out.rows; ++row)
      for (int64_t group = 0; group < groups; ++group) {
        const uint8_t* data = points->tensor.data;
        int point = 0;
        if (in_words)
          point = static_cast<int>(
                      packed_bits(data + (row / per_word * groups + group) * 4, 1, row % per_word * bits, bits)) -
                  middle;
        else
          point = static_cast<int8_t>(data[row * groups + group]);
        (*zero)[static_cast<size_t>(row * groups + group)] = static_cast<int16_t>(point);
        least = std::min(least, point);
        most = std::max(most, point);
      }
    out.low -= most;
    out.high -= least;
  }
  out.read = [=, data = stored->tensor.data, words = stored->tensor.cols(), group = out.group](
                 int64_t row, int64_t first, int64_t count, int16_t* levels) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t col = first + i;
      const int level = packed ? static_cast<int>(packed_bits(data + (row * words + col / per_word) * 4, 1,
                                                              col % per_word * bits, bits)) -
                                     middle
                               : static_cast<int8_t>(data[row * words + col]);
      const int point = zero->empty() ? 0 : (*zero)[static_cast<size_t>(row * groups + col / group)];
      levels[i] = static_cast<int16_t>(level - point);
    }
  };
  return out;
}

}  // namespace millrace
