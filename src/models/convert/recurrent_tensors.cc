#include "models/convert/recurrent_tensors.h"

#include <memory>
#include <string_view>
#include <utility>

namespace millrace {
namespace {

using Order = std::shared_ptr<const std::vector<int64_t>>;

// Folders store log(-A), and GGUF files A.
bool is_folder(const SsmSpec& ssm) { return ssm.log_a; }

// The source row of each row of the value heads, which have `dim` rows each and are behind `first` other rows; null:
// the output has the same order.
Order value_heads(const SsmSpec& from, const SsmSpec& to, int64_t first, int64_t dim) {
  if (from.tiled == to.tiled) return nullptr;
  const int64_t each = from.heads / from.groups;
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < first; ++row) rows.push_back(row);
  for (int64_t head = 0; head < from.heads; ++head) {
    const int64_t source =
        to.tiled ? head % from.groups * each + head / from.groups : head % each * from.groups + head / each;
    for (int64_t d = 0; d < dim; ++d) rows.push_back(first + source * dim + d);
  }
  return std::make_shared<const std::vector<int64_t>>(std::move(rows));
}

SourceTensor matrix(std::string name, int64_t rows, int64_t cols, Order order = nullptr) {
  SourceTensor out;
  out.name = std::move(name);
  out.rows = rows;
  out.cols = cols;
  out.row_order = std::move(order);
  return out;
}

SourceTensor vector(std::string name, int64_t n) {
  SourceTensor out = matrix(std::move(name), 1, n);
  out.is_vector = true;
  return out;
}

// A vector whose values may change their order: each is a row.
SourceTensor values(std::string name, int64_t n, Order order) {
  SourceTensor out = matrix(std::move(name), n, 1, std::move(order));
  out.is_vector = true;
  return out;
}

// The taps of a convolution, which folders store with one input channel for each output channel.
SourceTensor taps(std::string name, int64_t channels, const SsmSpec& to, Order order = nullptr) {
  SourceTensor out = matrix(std::move(name), channels, to.taps, std::move(order));
  if (is_folder(to)) out.dims = {channels, 1, to.taps};
  return out;
}

SourceTensor::Map decay_map(const SsmSpec& from, const SsmSpec& to) {
  if (from.log_a == to.log_a) return SourceTensor::Map::keep;
  return to.log_a ? SourceTensor::Map::log_of_negative : SourceTensor::Map::negative_exp;
}

SourceTensor zeros(std::string name, int64_t n) {
  SourceTensor out = vector(std::move(name), n);
  out.values = std::make_shared<const std::vector<float>>(static_cast<size_t>(n));
  return out;
}

}  // namespace

std::vector<SourceTensor> delta_net_tensors(const std::string& prefix, int64_t width, const SsmSpec& from,
                                            const SsmSpec& to, bool fused) {
  const int64_t keys = 2 * from.groups * from.state, dim = from.inner / from.heads;
  const Order convolved = value_heads(from, to, keys, dim), in = value_heads(from, to, 0, dim),
              heads = value_heads(from, to, 0, 1);
  std::vector<SourceTensor> out;
  out.push_back(matrix(prefix + "attn_qkv.weight", keys + from.inner, width, convolved));
  out.push_back(matrix(prefix + "attn_gate.weight", from.inner, width, in));
  if (fused) {
    out.push_back(matrix(prefix + "ssm_ba.weight", 2 * from.heads, width));
  } else {
    out.push_back(matrix(prefix + "ssm_beta.weight", from.heads, width, heads));
    out.push_back(matrix(prefix + "ssm_alpha.weight", from.heads, width, heads));
  }
  out.push_back(taps(prefix + "ssm_conv1d.weight", keys + from.inner, to, convolved));
  out.push_back(values(prefix + "ssm_dt.bias", from.heads, heads));
  out.push_back(values(prefix + "ssm_a", from.heads, heads));
  out.back().map = decay_map(from, to);
  out.push_back(vector(prefix + "ssm_norm.weight", dim));
  out.push_back(matrix(prefix + "ssm_out.weight", width, from.inner));
  out.back().col_order = in;
  return out;
}

std::vector<SourceTensor> mamba_tensors(const std::string& prefix, int64_t width, const SsmSpec& from,
                                        const SsmSpec& to) {
  std::vector<SourceTensor> out;
  out.push_back(matrix(prefix + "ssm_in.weight", 2 * from.inner, width));
  out.push_back(taps(prefix + "ssm_conv1d.weight", from.inner, to));
  if (from.conv_bias)
    out.push_back(vector(prefix + "ssm_conv1d.bias", from.inner));
  else if (to.conv_bias)
    out.push_back(zeros(prefix + "ssm_conv1d.bias", from.inner));
  out.push_back(matrix(prefix + "ssm_x.weight", from.rank + 2 * from.state, from.inner));
  out.push_back(matrix(prefix + "ssm_dt.weight", from.inner, from.rank));
  out.push_back(vector(prefix + "ssm_dt.bias", from.inner));
  out.push_back(matrix(prefix + "ssm_a", from.inner, from.state));
  out.back().map = decay_map(from, to);
  out.push_back(vector(prefix + "ssm_d", from.inner));
  out.push_back(matrix(prefix + "ssm_out.weight", width, from.inner));
  return out;
}

std::vector<SourceTensor> mamba2_tensors(const std::string& prefix, int64_t width, const SsmSpec& from,
                                         const SsmSpec& to) {
  const int64_t channels = from.inner + 2 * from.groups * from.state;
  std::vector<SourceTensor> out;
  out.push_back(matrix(prefix + "ssm_in.weight", from.inner + channels + from.heads, width));
  out.push_back(taps(prefix + "ssm_conv1d.weight", channels, to));
  if (from.conv_bias) out.push_back(vector(prefix + "ssm_conv1d.bias", channels));
  out.push_back(vector(prefix + "ssm_dt.bias", from.heads));
  for (const char* name : {"ssm_a", "ssm_d"}) {
    out.push_back(values(prefix + name, from.heads, nullptr));
    if (!is_folder(to)) out.back().dims = {from.heads, 1};
    if (name == std::string_view("ssm_a")) out.back().map = decay_map(from, to);
  }
  if (from.gated_norm) {
    out.push_back(vector(prefix + "ssm_norm.weight", from.inner));
    if (!is_folder(to)) out.back().dims = {from.groups, from.inner / from.groups};
  }
  out.push_back(matrix(prefix + "ssm_out.weight", width, from.inner));
  return out;
}

}  // namespace millrace
