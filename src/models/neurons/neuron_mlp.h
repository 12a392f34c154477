// NeuronMlp: computes a model's dense MLPs with ReLU neuron by neuron. Only the neurons whose output is not 0 are
// multiplied ("neuron-aware operators": Song et al., 2023, "PowerInfer"):
//
//   exact       gate = Wg x of all neurons; where it is positive: the row of Wu, and the column of Wd
//   predicted   the rows of Wg and Wu, and the columns of Wd, of the neurons that a predictor expects to be active
//
// In exact mode the result has the bits of mlp_block() if the down matrix is q8_0 (kernels/neuron_columns.h), and with
// vector kernels also if it is f32 or f16, which kernels sum in ascending order: rows are multiplied by the model's own
// kernels, and the values that are left out are 0. In predicted mode it has the bits of an MLP whose neurons that were
// not predicted have the gate 0. Both depend on the token alone: a batch computes the union of its tokens' neurons, and
// sets the others of each token to 0.
//
// Thread-safe: passes of several engines take turns.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "kernels/neuron_columns.h"
#include "models/linear_id.h"
#include "models/model.h"
#include "models/neurons/neuron_file.h"
#include "models/neurons/neuron_predictor.h"
#include "models/neurons/neuron_store.h"

namespace millrace {

class NeuronMlp {
 public:
  // `source`: name of the weight source.
  NeuronMlp(NeuronFile file, std::string source, bool predicts)
      : file_(std::move(file)), source_(std::move(source)), predicts_(predicts) {}

  // Called once, before attach().
  Result<void> open(NeuronStore::Options options);
  // Called once, before the first pass: checks that the file is the model's, and packs the predictors. Errors: user,
  // unsupported, resource.
  Result<void> attach(const ModelFiles& files, const Model& model, const KernelTable& table, ThreadPool& pool);

  // Replaces mlp_block(): context.normed, rounded in `rows` -> context.block_out. If neurons cannot be read, the pass
  // fails.
  void run(const ArchSpec& spec, LinearId at, const MlpWeights& weights, const ActivationRows& rows,
           ForwardContext& context);

  const NeuronFile& file() const { return file_; }
  bool predicts() const { return predicts_; }
  // The choice of the family `weights`, NAME:file=...
  std::string choice() const;
  WeightFigures figures() const;

 private:
  // The arguments of run().
  struct Call {
    const ArchSpec& spec;
    LinearId at;
    const MlpWeights& weights;
    const ActivationRows& rows;
    ForwardContext& context;
  };
  struct Worker {
    AlignedBuffer rows, packed;  // stored rows of some neurons, and their packed form
    std::vector<float> out;      // [tokens][kRowsAtOnce]
  };
  // One of the two matrices that are read by rows.
  struct Rows {
    const Weight& weight;
    const std::vector<float>& bias;
    int64_t at = 0;  // offset in a bundle
    float* y = nullptr;
  };
  // The values of one token that are not 0, for the kernel of columns.
  struct Columns {
    std::vector<const int8_t*> columns;
    std::vector<int8_t> x;
    std::vector<int32_t> ends;
    std::vector<const float*> scales;
    std::vector<float> x_scales;
  };

  Result<void> compute(const Call& call);
  Result<void> choose(const Call& call, const Weight& first, const std::vector<float>& bias, float* y);
  void choose_positive(const float* gate, int64_t tokens);
  Result<void> choose_predicted(int64_t layer, const float* x, int64_t tokens, ForwardContext& context);
  Result<void> fill_rows(const Call& call, float* gate, float* up);
  // Hooks of the pass, such as adapters, see the matrices as they do in mlp_block().
  static void observe(const Call& call, LinearKind kind, const Weight& weight, const float* x);
  static void adapt(const Call& call, LinearKind kind, const Weight& weight, const float* x, float* y);
  void reserve(int64_t tokens, int threads);
  Result<void> reserve_rows(const Weight& first, const Weight& up);
  void multiply_rows(std::span<const Rows> matrices, const ActivationRows& x, ForwardContext& context);
  void multiply_chunk(const Rows& matrix, const ActivationRows& x, size_t first, size_t count, Worker& worker) const;
  void mask(float* values, int64_t tokens) const;
  void add_levels(int64_t layer, const ActivationRows& inner, ForwardContext& context);
  void list_columns(const NeuronTables& tables, const uint8_t* row, Columns& out) const;
  void add_values(const float* inner, int64_t tokens, ForwardContext& context) const;

  NeuronFile file_;
  const std::string source_;
  const bool predicts_;
  std::unique_ptr<NeuronStore> store_;
  std::vector<NeuronPredictor> predictors_;  // by layer; empty in exact mode
  mutable std::mutex mutex_;
  PredictorRows predictions_;
  std::vector<uint8_t> masks_;           // [tokens][hidden]: 1 where the token's neuron is computed
  std::vector<int32_t> neurons_;         // neurons of the present batch, ascending
  std::vector<const uint8_t*> bundles_;  // their bundles
  std::vector<Worker> workers_;
  std::vector<Columns> columns_;
  int64_t all_ = 0, run_ = 0;  // WeightFigures::neurons, neurons_run
};

}  // namespace millrace
