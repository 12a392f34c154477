// NpuMatrices: the int8 copies of a model's matrices with the scales of their inputs, and the float columns that shadow
// outliers multiply (Xu et al., 2024, "Fast On-device LLM Inference with NPUs", section 3.3).
//
// Each input has one static scale. If its outliers are computed, 127 levels of it cover all but a few channels of the
// calibration (NpuOptions::channels). Those few are its hot channels, whose columns stay in memory as floats. An input
// is important if its largest channel is many times as large as what the levels cover. The least important inputs have
// no outliers (NpuOptions::pruned): their scale covers the largest channel.
//
// Immutable after create(). Thread-safe.
#pragma once

#include <map>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/int8_matrix.h"
#include "models/model.h"
#include "models/npu/options.h"

namespace millrace {

// Static properties of one input.
struct NpuInputScale {
  float scale = 1;           // value of one level
  double importance = 1;     // largest channel, as a multiple of what the levels of all but the hot ones cover
  bool shadow = false;       // outliers are computed
  std::vector<int32_t> hot;  // hot channels, ascending; empty without outliers
};

// Returns the scale of every input. Errors: user (`scales` lacks an input or has other channels than the model).
Result<std::map<NpuInput, NpuInputScale>> npu_input_scales(const std::map<NpuInput, int64_t>& columns,
                                                           const NpuScales& scales, const NpuOptions& options);

struct NpuMatrix {
  const Weight* source = nullptr;
  const NpuInputScale* input = nullptr;
  Int8Matrix levels;
  AlignedBuffer columns;           // [hot channels][rows] floats
  std::vector<int32_t> column_at;  // by channel: index of its hot column, or -1; empty: no outliers

  const float* hot_column(int64_t channel) const {
    const int32_t at = column_at[static_cast<size_t>(channel)];
    return at < 0 ? nullptr : columns.as<float>() + at * levels.rows;
  }
};

class NpuMatrices {
 public:
  // Matrices that graphs can compute: dense ones of attention and MLPs whose stored rows can be decoded alone.
  static std::map<LinearId, const Weight*> eligible(const Model& model);
  // Columns of the inputs of these matrices.
  static std::map<NpuInput, int64_t> input_columns(const std::map<LinearId, const Weight*>& weights);
  // Returns an upper limit of the bytes that create() allocates.
  static int64_t bytes(const Model& model, const NpuOptions& options);

  // `model` must outlive the result. Errors: user (scales of another model), unsupported (no matrix is eligible),
  // resource.
  static Result<NpuMatrices> create(const Model& model, const NpuScales& scales, const NpuOptions& options,
                                    ThreadPool& pool);

  const NpuMatrix* find(const LinearId& id) const {
    const auto found = matrices_.find(id);
    return found == matrices_.end() ? nullptr : &found->second;
  }
  const std::map<LinearId, NpuMatrix>& all() const { return matrices_; }
  const std::map<NpuInput, NpuInputScale>& inputs() const { return inputs_; }

 private:
  std::map<NpuInput, NpuInputScale> inputs_;  // nodes do not move: matrices point to them
  std::map<LinearId, NpuMatrix> matrices_;
};

// Decodes columns of a stored matrix to `out` [channels][rows].
void decode_npu_columns(const Weight& weight, std::span<const int32_t> channels, ThreadPool& pool, float* out);

}  // namespace millrace
