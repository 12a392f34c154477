// GPTQ checkpoints (Frantar et al., 2022, GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
// Transformers), as AutoGPTQ and GPTQModel write them. Of a matrix with `in` columns and `out` rows, in I32 words:
//
//   qweight [in * bits / 32, out]        levels, packed along the columns of the matrix
//   qzeros  [groups, out * bits / 32]    zero points, packed along its rows; less 1 unless checkpoint_format is
//   gptq_v2.
//                                        A stored 15 of 4 bits is 16, as in AutoGPTQ's and ExLlama's kernels, not 0
//   scales  [groups, out]
//   g_idx   [in]                         the group of each column; with desc_act not in order
//
// With desc_act the columns are stored here in the order of their groups, and the input is permuted to match.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "base/ordered_json.h"
#include "loader/quantized/methods.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

// The columns by group, stable; empty: they are in this order. `group`: columns of each, of which the last may have
// fewer. Errors: corrupt.
Result<std::vector<int32_t>> column_order(const QuantizedTensors& tensors, int64_t cols, int64_t groups,
                                          int64_t group) {
  std::vector<int32_t> order;
  if (!tensors.find("g_idx")) return order;
  MILLRACE_TRY(const std::vector<int32_t> group_of, tensors.integers("g_idx", cols, groups - 1));
  std::vector<int64_t> counts(static_cast<size_t>(groups));
  for (int32_t of : group_of) ++counts[static_cast<size_t>(of)];
  const int64_t last = cols - (groups - 1) * group;
  if (counts.back() != last || std::any_of(counts.begin(), counts.end() - 1, [&](int64_t n) { return n != group; }))
    return tensors.wrong(*tensors.find("g_idx"), fmt::format("its {} groups have not {} columns each", groups, group));
  if (std::ranges::is_sorted(group_of)) return order;
  order.resize(group_of.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int32_t column) { return group_of[static_cast<size_t>(column)]; });
  return order;
}

Result<int> bits_of(const Json& config) {
  const auto bits = config.find("bits");
  const int64_t given = bits != config.end() && bits->is_number_unsigned() ? bits->get<int64_t>() : 0;
  if (given == 2 || given == 3 || given == 4 || given == 8) return static_cast<int>(given);
  return Error::unsupported("config.json: key 'quantization_config.bits': must be 2, 3, 4 or 8 for gptq");
}

// Columns of each group but the last, which has the remaining ones: as group_size states, or equal shares. 0: neither.
int64_t columns_of_group(const Json& config, int64_t cols, int64_t groups) {
  const auto stated = config.find("group_size");
  const int64_t size = stated != config.end() && stated->is_number_integer() ? stated->get<int64_t>() : 0;
  if (size > 0 && size <= cols && (cols + size - 1) / size == groups) return size;
  return cols % groups == 0 ? cols / groups : 0;
}

}  // namespace

Result<Levels> read_gptq(const QuantizedTensors& tensors, const Json& config, std::vector<int32_t>& order) {
  MILLRACE_TRY(const int bits, bits_of(config));
  const auto version = config.find("checkpoint_format");
  const bool v2 = version != config.end() && *version == "gptq_v2";
  MILLRACE_TRY(const StoredTensor* words, tensors.matrix("qweight", "I32", -1, -1));
  const int64_t rows = words->tensor.cols(), cols = words->tensor.rows() * 32 / bits;
  if (words->tensor.rows() * 32 % bits != 0 || rows * bits % 32 != 0)
    return tensors.wrong(*words, fmt::format("{} x {} words are not whole rows and columns of {} bits",
                                             words->tensor.rows(), rows, bits));
  MILLRACE_TRY(const StoredTensor* zeros, tensors.matrix("qzeros", "I32", -1, rows * bits / 32));
  const int64_t groups = zeros->tensor.rows();
  const int64_t group_size = columns_of_group(config, cols, groups);
  if (group_size == 0) return tensors.wrong(*zeros, fmt::format("{} groups do not divide {} columns", groups, cols));
  MILLRACE_TRY(const std::vector<float> by_group, tensors.numbers("scales", groups, rows));
  MILLRACE_TRY(order, column_order(tensors, cols, groups, group_size));

  Levels out{.rows = rows, .cols = cols, .group = group_size};
  out.scales.resize(by_group.size());
  auto zero = std::make_shared<std::vector<int16_t>>(by_group.size());  // [rows, groups]
  const int top = (1 << bits) - 1;
  int least = top + 1, most = 0;
  for (int64_t group = 0; group < groups; ++group) {
    const uint8_t* line = zeros->tensor.data + group * zeros->tensor.cols() * 4;
    for (int64_t row = 0; row < rows; ++row) {
      const auto at = static_cast<size_t>(row * groups + group);
      out.scales[at] = by_group[static_cast<size_t>(group * rows + row)];
      const int point = static_cast<int>(packed_bits(line, 1, row * bits, bits)) + (v2 ? 0 : 1);
      (*zero)[at] = static_cast<int16_t>(point);
      least = std::min(least, point);
      most = std::max(most, point);
    }
  }
  out.low = -most;
  out.high = top - least;
  const auto columns = std::make_shared<const std::vector<int32_t>>(order);
  out.read = [=, data = words->tensor.data, group = out.group](int64_t row, int64_t first, int64_t count,
                                                               int16_t* levels) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t stored = first + i, column = columns->empty() ? stored : (*columns)[static_cast<size_t>(stored)];
      levels[i] = static_cast<int16_t>(static_cast<int>(packed_bits(data + row * 4, rows, column * bits, bits)) -
                                       (*zero)[static_cast<size_t>(row * groups + stored / group)]);
    }
  };
  return out;
}

}  // namespace millrace
