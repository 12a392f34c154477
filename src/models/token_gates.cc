#include "models/token_gates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/weight_loader.h"

namespace millrace {
namespace {

constexpr int64_t kMaxDims = 1 << 16;
constexpr size_t kLanes = 16;  // partial sums, so that a compiler may use vectors; the order of sums is fixed

float dot(const float* a, const float* b, size_t n) {
  float sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  for (; i < n; ++i) sums[i % kLanes] += a[i] * b[i];
  for (size_t half = kLanes / 2; half > 0; half /= 2)
    for (size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  return sums[0];
}

// [rows, cols] -> [cols, rows]
std::vector<float> transpose(const std::vector<float>& matrix, size_t rows, size_t cols) {
  std::vector<float> out(matrix.size());
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < cols; ++c) out[c * rows + r] = matrix[r * cols + c];
  return out;
}

Result<void> load_pairs(WeightLoader& loader, const std::string& prefix, int64_t width, TokenGates& gates) {
  const std::string names[] = {prefix + "attn_int_q.weight", prefix + "attn_int_k.weight", prefix + "attn_int.bias"};
  const StoredTensor* found[3];
  for (size_t i = 0; i < 3; ++i) found[i] = loader.find(names[i]);
  if (!found[0] && !found[1] && !found[2]) return {};
  const int64_t dims = found[0] ? found[0]->tensor.rows() : found[1] ? found[1]->tensor.rows() : 1;
  if (dims < 1 || dims > kMaxDims)
    return Error::corrupt(fmt::format("tensor {}: gates of {} dims; 1 to {} are supported",
                                      (found[0] ? found[0] : found[1])->name, dims, kMaxDims));
  MILLRACE_TRY(const auto query, loader.table(names[0], dims, width));
  MILLRACE_TRY(const auto key, loader.table(names[1], dims, width));
  MILLRACE_TRY(const auto bias, loader.vector(names[2], 1));
  gates.dims = dims;
  gates.query = transpose(query, static_cast<size_t>(dims), static_cast<size_t>(width));
  gates.key = transpose(key, static_cast<size_t>(dims), static_cast<size_t>(width));
  gates.bias = bias.front();
  return {};
}

Result<void> load_selection(WeightLoader& loader, const std::string& prefix, int64_t width, TokenGates& gates) {
  const std::string name = prefix + "attn_select";
  const bool others = loader.find(name + ".bias") || loader.find(name + ".temperature");
  if (!loader.find(name + ".weight") && !others) return {};
  MILLRACE_TRY(auto rows, loader.table(name + ".weight", 2, width));
  MILLRACE_TRY(const auto bias, loader.optional_vector(name + ".bias", 2));
  MILLRACE_TRY(const auto log_temperature, loader.optional_vector(name + ".temperature", 1));
  for (int64_t i = 0; i < width; ++i)
    rows[static_cast<size_t>(i)] = rows[static_cast<size_t>(width + i)] - rows[static_cast<size_t>(i)];
  rows.resize(static_cast<size_t>(width));
  gates.select = std::move(rows);
  gates.select_bias = bias.empty() ? 0 : bias[1] - bias[0];
  gates.temperature = log_temperature.empty() ? 1 : std::exp(log_temperature.front());
  return {};
}

}  // namespace

int64_t TokenGates::bytes() const {
  return static_cast<int64_t>((query.size() + key.size() + select.size()) * sizeof(float));
}

void TokenGates::project(const KernelTable& kernels, const std::vector<float>& matrix, const float* x,
                         float* out) const {
  std::fill_n(out, dims, 0.0f);
  const int64_t width = std::ssize(matrix) / dims;
  for (int64_t i = 0; i < width; ++i) kernels.add_scaled(matrix.data() + i * dims, x[i], out, dims);
}

bool TokenGates::opens(const float* q, const float* k) const {
  const auto n = static_cast<size_t>(dims);
  return dot(q, k, n) / std::sqrt(static_cast<float>(n)) + bias > 0;
}

float TokenGates::selection(const float* x) const {
  const float ahead = dot(x, select.data(), select.size()) + select_bias;
  return ahead > 0 ? 1 / (1 + std::exp(-ahead / temperature)) : 0;
}

Result<TokenGates> load_token_gates(WeightLoader& loader, const std::string& prefix, int64_t width) {
  TokenGates gates;
  MILLRACE_TRY_VOID(load_pairs(loader, prefix, width, gates));
  MILLRACE_TRY_VOID(load_selection(loader, prefix, width, gates));
  return gates;
}

Result<GateSizes> common_gates(const std::string& path, const std::vector<const TokenGates*>& layers) {
  GateSizes sizes;
  for (size_t i = 0; i < layers.size(); ++i) {
    const GateSizes own{layers[i]->dims, !layers[i]->select.empty()};
    if (i == 0) sizes = own;
    if (!(own == sizes))
      return Error::corrupt(
          fmt::format("{}: layers 0 and {} have gates of different kinds or sizes; all need the same", path, i));
  }
  return sizes;
}

}  // namespace millrace
