#include "models/npu/matrices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "formats/format.h"
#include "kernels/linear.h"

namespace millrace {
namespace {

constexpr int64_t kPageBytes = 4096;  // buffers are rounded up to whole pages

bool is_eligible(const Weight& weight) {
  return weight.present() && weight.data && weight.format && weight.format->decode && !weight.codebook &&
         !weight.parts && !weight.column_format && weight.scales.values.empty() && weight.cols <= kMaxInt8Columns;
}

void add_npu_mlp(const MlpWeights& mlp, LinearId id, std::map<LinearId, const Weight*>& out) {
  for (const auto& [kind, weight] :
       {std::pair(LinearKind::gate, &mlp.gate), {LinearKind::up, &mlp.up}, {LinearKind::down, &mlp.down}})
    if (is_eligible(*weight)) out[id.of(kind)] = weight;
}

NpuInput input_of(const LinearId& id) {
  NpuInput input;
  npu_input_of(id, input);
  return input;
}

std::string text_of(const NpuInput& input) {
  return fmt::format("layer {}, {}", input.layer, kNpuSiteNames[input.site]);
}

// The largest channel but the hottest ones, and the largest one.
std::pair<float, float> covered_and_largest(std::vector<float> maxima, double channels) {
  const auto hot = static_cast<size_t>(channels * static_cast<double>(maxima.size()));
  std::ranges::sort(maxima);
  const float largest = maxima.back();
  const float covered = maxima[maxima.size() - 1 - std::min(hot, maxima.size() - 1)];
  return {covered > 0 ? covered : largest, largest};
}

float scale_for(float covered) { return covered > 0 ? covered / 127 : 1.0f / 127; }

// Sets the outliers of the most important inputs.
void choose_shadows(std::map<NpuInput, NpuInputScale>& inputs, const NpuScales& scales, const NpuOptions& options) {
  std::vector<std::pair<double, NpuInput>> ranks;  // the most important ones first; equal ones in the model's order
  for (const auto& [input, scale] : inputs) ranks.emplace_back(-scale.importance, input);
  std::ranges::sort(ranks);
  const auto kept = static_cast<size_t>(std::ceil((1 - options.pruned) * static_cast<double>(ranks.size())));
  for (size_t i = 0; i < std::min(kept, ranks.size()); ++i) {
    NpuInputScale& scale = inputs[ranks[i].second];
    const std::vector<float>& maxima = scales.maxima.at(ranks[i].second);
    const float covered = covered_and_largest(maxima, options.channels).first;
    scale.shadow = true;
    scale.scale = scale_for(covered);
    for (size_t c = 0; c < maxima.size(); ++c)
      if (maxima[c] > covered) scale.hot.push_back(static_cast<int32_t>(c));
  }
}

// Calls body(row, values) for every decoded row, on any thread.
template <typename Body>
void each_row(const Weight& weight, ThreadPool& pool, const Body& body) {
  constexpr int64_t kRows = 16;  // decoded by a thread at once
  const int64_t row_bytes = weight.format->row_bytes(weight.cols);
  std::vector<std::vector<float>> buffers(static_cast<size_t>(pool.threads()));
  for (auto& buffer : buffers) buffer.resize(static_cast<size_t>(weight.cols));
  pool.parallel_for((weight.rows + kRows - 1) / kRows, [&](int64_t part, int worker) {
    float* const values = buffers[static_cast<size_t>(worker)].data();
    for (int64_t row = part * kRows; row < std::min(weight.rows, (part + 1) * kRows); ++row) {
      weight.format->decode(weight.data + row * row_bytes, values, weight.cols);
      body(row, values, worker);
    }
  });
}

Result<NpuMatrix> make_matrix(const Weight& weight, const NpuInputScale& input, ThreadPool& pool) {
  NpuMatrix out{&weight, &input, {}, {}, {}};
  std::vector<float> largest(static_cast<size_t>(pool.threads()), 0);
  each_row(weight, pool, [&](int64_t, const float* values, int worker) {
    float& most = largest[static_cast<size_t>(worker)];
    for (int64_t c = 0; c < weight.cols; ++c) most = std::max(most, std::fabs(values[c]));
  });
  const float most = *std::ranges::max_element(largest);
  MILLRACE_TRY(out.levels, make_int8_matrix(weight.rows, weight.cols, most / 127));
  const auto hot = std::ssize(input.hot);
  if (input.shadow) {
    out.column_at.assign(static_cast<size_t>(weight.cols), -1);
    for (int64_t i = 0; i < hot; ++i)
      out.column_at[static_cast<size_t>(input.hot[static_cast<size_t>(i)])] = static_cast<int32_t>(i);
    MILLRACE_TRY(out.columns, AlignedBuffer::allocate(std::max<int64_t>(64, hot * weight.rows * 4), "outlier columns"));
  }
  each_row(weight, pool, [&](int64_t row, const float* values, int) {
    store_int8_row(row, values, out.levels);
    for (int64_t i = 0; i < hot; ++i)
      out.columns.as<float>()[i * weight.rows + row] = values[input.hot[static_cast<size_t>(i)]];
  });
  return out;
}

}  // namespace

std::map<LinearId, const Weight*> NpuMatrices::eligible(const Model& model) {
  std::map<LinearId, const Weight*> out;
  for (int64_t i = 0; i < model.spec().layer_count(); ++i) {
    const LayerWeights& layer = model.layer(i);
    const LinearId id{.layer = static_cast<int32_t>(i)};
    for (const auto& [kind, weight] : {std::pair(LinearKind::q, &layer.q),
                                       {LinearKind::k, &layer.k},
                                       {LinearKind::v, &layer.v},
                                       {LinearKind::output, &layer.output}})
      if (is_eligible(*weight)) out[id.of(kind)] = weight;
    add_npu_mlp(layer.mlp, id, out);
    add_npu_mlp(layer.shared, {.layer = id.layer, .expert = LinearId::kShared}, out);
  }
  return out;
}

std::map<NpuInput, int64_t> NpuMatrices::input_columns(const std::map<LinearId, const Weight*>& weights) {
  std::map<NpuInput, int64_t> out;
  for (const auto& [id, weight] : weights) out[input_of(id)] = weight->cols;
  return out;
}

int64_t NpuMatrices::bytes(const Model& model, const NpuOptions& options) {
  int64_t levels = 0;
  std::map<NpuInput, int64_t> columns;  // bytes of the hot columns of each input
  for (const auto& [id, weight] : eligible(model)) {
    levels += int8_matrix_bytes(weight->rows, weight->cols) + kPageBytes;
    const auto hot = static_cast<int64_t>(options.channels * static_cast<double>(weight->cols));
    columns[input_of(id)] += hot * weight->rows * 4 + 4 * weight->cols + kPageBytes;
  }
  std::vector<int64_t> sizes;
  for (const auto& [input, bytes] : columns) sizes.push_back(bytes);
  std::ranges::sort(sizes, std::greater());
  const double share = options.shadow ? 1 - options.pruned : 0;
  const auto kept = static_cast<size_t>(std::ceil(share * static_cast<double>(sizes.size())));
  sizes.resize(std::min(kept, sizes.size()));
  return std::accumulate(sizes.begin(), sizes.end(), levels);
}

Result<std::map<NpuInput, NpuInputScale>> npu_input_scales(const std::map<NpuInput, int64_t>& columns,
                                                           const NpuScales& scales, const NpuOptions& options) {
  std::map<NpuInput, NpuInputScale> out;
  for (const auto& [input, cols] : columns) {
    const auto found = scales.maxima.find(input);
    const bool fits = found != scales.maxima.end() && std::ssize(found->second) == cols;
    if (!fits)
      return Error::user(
          fmt::format("kernel npu: {}: {} does not have its {} channels; run millrace npu-scales on this "
                      "model",
                      text_of(input), options.file.empty() ? "the calibration" : options.file, cols));
    const auto [covered, largest] = covered_and_largest(found->second, options.channels);
    out[input] = {
        scale_for(largest), covered > 0 ? static_cast<double>(largest) / static_cast<double>(covered) : 1, false, {}};
  }
  if (options.shadow) choose_shadows(out, scales, options);
  return out;
}

Result<NpuMatrices> NpuMatrices::create(const Model& model, const NpuScales& scales, const NpuOptions& options,
                                        ThreadPool& pool) {
  const auto weights = eligible(model);
  if (weights.empty())
    return Error::unsupported(
        "kernel npu: no matrix of this model can be copied to int8: they are transposed, or have codebooks, parts or "
        "scales of blocks; omit the switch");
  NpuMatrices out;
  MILLRACE_TRY(out.inputs_, npu_input_scales(input_columns(weights), scales, options));
  for (const auto& [id, weight] : weights) {
    MILLRACE_TRY(NpuMatrix matrix, make_matrix(*weight, out.inputs_.at(input_of(id)), pool));
    out.matrices_.emplace(id, std::move(matrix));
  }
  return out;
}

void decode_npu_columns(const Weight& weight, std::span<const int32_t> channels, ThreadPool& pool, float* out) {
  constexpr int64_t kRows = 64;  // of a thread at once
  const Format& format = *weight.format;
  const int64_t block = format.block_values, row_bytes = format.row_bytes(weight.cols);
  std::vector<std::vector<float>> buffers(static_cast<size_t>(pool.threads()), std::vector<float>(block));
  pool.parallel_for((weight.rows + kRows - 1) / kRows, [&](int64_t part, int worker) {
    float* const values = buffers[static_cast<size_t>(worker)].data();
    for (int64_t row = part * kRows; row < std::min(weight.rows, (part + 1) * kRows); ++row)
      for (size_t i = 0; i < channels.size(); ++i) {
        format.decode(weight.data + row * row_bytes + channels[i] / block * format.block_bytes, values, block);
        out[static_cast<int64_t>(i) * weight.rows + row] = values[channels[i] % block];
      }
  });
}

}  // namespace millrace
