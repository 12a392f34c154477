#include "prompt/keep_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "formats/format.h"
#include "loader/safetensors.h"
#include "tensor/mapped_file.h"
#include "tensor/tensor.h"

namespace millrace {
namespace {

constexpr int64_t kMaxPolicySize = int64_t{1} << 16;  // inputs and hidden values
constexpr size_t kLanes = 8;                          // partial sums, so that a compiler may use vectors

double lane_dot(const float* a, const double* b, size_t n) {
  double sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += static_cast<double>(a[i + lane]) * b[i + lane];
  for (; i < n; ++i) sums[i % kLanes] += static_cast<double>(a[i]) * b[i];
  for (size_t half = kLanes / 2; half > 0; half /= 2)
    for (size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  return sums[0];
}

double exact_gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2)); }

struct PolicyTensors {
  std::string path;
  std::span<const uint8_t> bytes;
  std::vector<SafetensorsTensor> all;

  const SafetensorsTensor* find(const std::string& name) const {
    const auto found = std::ranges::find(all, name, &SafetensorsTensor::name);
    return found == all.end() ? nullptr : &*found;
  }

  // The values of a tensor of `rank` dimensions, whose sizes are also returned in `rows` and `cols`.
  Result<std::vector<float>> values(const SafetensorsTensor& one, int rank, int64_t& rows, int64_t& cols) const {
    const std::string what = fmt::format("{}: tensor {}", path, one.name);
    const Format* format = find_format_safetensors(one.dtype);
    if (!format || (one.dtype != "F32" && one.dtype != "F16" && one.dtype != "BF16"))
      return Error::unsupported(fmt::format("{} has type {}; store F32, F16 or BF16", what, one.dtype));
    if (one.rank != rank) return Error::corrupt(fmt::format("{} has {} dimensions, not {}", what, one.rank, rank));
    const Tensor tensor{format, one.rank, one.dims, bytes.data() + one.offset, static_cast<int64_t>(one.bytes)};
    rows = rank == 1 ? 1 : tensor.rows();
    cols = tensor.cols();
    if (rows < 1 || cols < 1 || rows > kMaxPolicySize || cols > kMaxPolicySize)
      return Error::unsupported(fmt::format("{} is {} by {}; 1 to {} are supported", what, rows, cols, kMaxPolicySize));
    std::vector<float> out(static_cast<size_t>(rows * cols));
    for (int64_t row = 0; row < rows; ++row)
      format->decode(tensor.data + row * format->row_bytes(cols), out.data() + row * cols, cols);
    if (!std::ranges::all_of(out, [](float value) { return std::isfinite(value); }))
      return Error::corrupt(what + " holds NaN or infinity");
    return out;
  }

  // A layer's matrix, and its bias if the file has one.
  Result<void> layer(const std::string& prefix, int64_t& outputs, int64_t& inputs, std::vector<float>& weight,
                     std::vector<float>& bias) const {
    const SafetensorsTensor* matrix = find(prefix + ".weight");
    if (!matrix)
      return Error::user(fmt::format("{} has no tensor {}.weight; it is not a policy of this member", path, prefix));
    MILLRACE_TRY(weight, values(*matrix, 2, outputs, inputs));
    const SafetensorsTensor* added = find(prefix + ".bias");
    if (!added) return {};
    int64_t one = 0, size = 0;
    MILLRACE_TRY(bias, values(*added, 1, one, size));
    if (size != outputs)
      return Error::corrupt(
          fmt::format("{}: tensor {}.bias has {} values, its matrix has {} rows", path, prefix, size, outputs));
    return {};
  }
};

}  // namespace

double KeepPolicy::keep_probability(std::span<const float> x) const {
  const std::vector<double> input(x.begin(), x.end());
  std::vector<double> hidden(static_cast<size_t>(hidden_));
  for (size_t i = 0; i < hidden.size(); ++i) {
    const double bias = first_bias_.empty() ? 0 : static_cast<double>(first_bias_[i]);
    hidden[i] = exact_gelu(lane_dot(first_.data() + i * input.size(), input.data(), input.size()) + bias);
  }
  double logits[2] = {};
  for (size_t i = 0; i < static_cast<size_t>(outputs_); ++i)
    logits[i] = lane_dot(second_.data() + i * hidden.size(), hidden.data(), hidden.size()) +
                (second_bias_.empty() ? 0 : static_cast<double>(second_bias_[i]));
  const double ahead = outputs_ == 1 ? logits[0] : logits[1] - logits[0];
  return 1 / (1 + std::exp(-ahead));
}

Result<std::shared_ptr<const PolicyFile>> PolicyFile::open(const std::string& path,
                                                           const std::vector<std::string>& names) {
  MILLRACE_TRY(const auto mapped, MappedFile::open(path));
  PolicyTensors tensors{path, mapped->bytes(), {}};
  MILLRACE_TRY(tensors.all, parse_safetensors(tensors.bytes, path));
  auto out = std::make_shared<PolicyFile>();
  out->path_ = path;
  for (const std::string& name : names) {
    KeepPolicy& policy = out->networks_[name];
    int64_t hidden = 0;
    MILLRACE_TRY_VOID(tensors.layer(name + ".0", policy.hidden_, policy.inputs_, policy.first_, policy.first_bias_));
    MILLRACE_TRY_VOID(tensors.layer(name + ".2", policy.outputs_, hidden, policy.second_, policy.second_bias_));
    if (hidden != policy.hidden_)
      return Error::corrupt(fmt::format("{}: tensor {}.2.weight reads {} values, {}.0.weight has {} rows", path, name,
                                        hidden, name, policy.hidden_));
    if (policy.outputs_ > 2)
      return Error::unsupported(
          fmt::format("{}: tensor {}.2.weight has {} rows; a policy has 1 or 2", path, name, policy.outputs_));
  }
  return std::shared_ptr<const PolicyFile>(std::move(out));
}

Result<void> PolicyFile::check_width(const std::string& name, size_t width) const {
  const int64_t inputs = network(name).inputs();
  if (inputs == static_cast<int64_t>(width)) return {};
  return Error::user(
      fmt::format("{}: its network '{}' reads vectors of {} values, the model's have {}; train it with "
                  "this model, or name its model by model=",
                  path_, name, inputs, width));
}

}  // namespace millrace
