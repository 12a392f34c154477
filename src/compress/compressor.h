// Compressor: the steps of one compression: open, plan the output, measure a range of layers, run the passes over its
// matrices, write. Only compress_model() uses it. Not thread-safe.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compress/compress.h"
#include "compress/matrix_work.h"
#include "compress/output/output_store.h"
#include "compress/output/run_state.h"
#include "compress/structural_pass.h"
#include "formats/four_of_eight.h"
#include "models/convert/conversion.h"
#include "run/language_model.h"

namespace millrace {

struct NamedPass {
  std::string text;  // NAME[:key=value,...]
  std::unique_ptr<Pass> pass;
};

// Those of options.passes and options.target_bits. Errors: user.
Result<std::vector<NamedPass>> make_passes(const CompressOptions& options);

// The packed weights of the model while they are on the disk: a file that goes with this.
struct PackedWeights {
  explicit PackedWeights(std::string output) : path(std::move(output) + ".packed") {}
  ~PackedWeights();
  PackedWeights(const PackedWeights&) = delete;
  std::string path;
};

class Compressor {
 public:
  explicit Compressor(const CompressOptions& options) : options_(options) {}
  Result<CompressReport> run();

 private:
  // compressor.cc
  Result<void> open();
  Result<void> fix_table(bool rounds);
  Result<void> calibrate();
  Result<void> read_text();
  Result<void> choose_formats(Pass& pass);
  bool needs_disk() const;
  int64_t largest_layer(const std::function<int64_t(const TensorWork&)>& bytes) const;
  Result<void> reserve_output();
  Result<void> reshape(StructuralPass& pass);
  // The matrix whose passes take most memory.
  struct LargestMatrix {
    std::string name;
    int64_t rows = 0, cols = 0, bytes = 0;
  };
  LargestMatrix largest_matrix() const;

  // compressor_blocks.cc
  Result<void> run_blocks();
  Result<size_t> range_end(size_t first);
  int64_t statistics_bytes(const TensorWork& work) const;
  Result<void> measure(size_t first, size_t end);
  Result<void> measure_range(size_t first);
  Result<void> survey_tensor(const TensorWork& work);
  bool is_block(const std::vector<TensorResult>& results, size_t first, size_t end) const;
  Result<void> run_block(size_t first, size_t end);
  Result<TensorResult> run_tensor(const TensorWork& work);
  Result<void> keep_result(TensorResult result);
  void release_input() const;
  size_t block_end(size_t first) const;
  PassRow kept_row(const TensorWork& work) const;
  // Returns true if the pass leaves the tensor alone because its format is fixed. A sparse format stores the weights
  // that pruners leave, so passes without their own format may change such a tensor.
  bool keeps_from(const Pass& pass, const TensorWork& work) const {
    if (!kept_.contains(work.tensor) || pass.rounds_to_any_format()) return false;
    return !pass.format().empty() || !is_four_of_eight(*plan_.tensors[work.tensor].format);
  }

  // compressor_output.cc
  Result<void> open_state();
  Result<CompressReport> preview();
  Result<int64_t> preview_tensor(const TensorWork& work);
  Result<CompressReport> finish();
  void count_input();
  void note_idle_passes();
  void count_table();
  void set_metadata();
  Result<void> write();

  void show(double fraction, const std::string& what) const {
    if (options_.progress) options_.progress(fraction, what);
  }
  // With `done` of all tensors in this run over them.
  void show_run(double done, const std::string& what) const {
    show((run_ + done / static_cast<double>(works_.size())) / runs_, what);
  }

  const CompressOptions& options_;
  CompressReport report_;
  std::vector<NamedPass> passes_;
  uint32_t needs_ = kNoStatistics;
  ConversionInput input_;
  ConversionPlan plan_;
  std::map<size_t, std::string> kept_;     // tensors of the plan with a fixed format, and the option that fixes it
  const Format* rounded_table_ = nullptr;  // the passes' format of the table, where --table replaced it; or null
  std::vector<TensorWork> works_;          // by layer
  OutputStore store_;
  std::vector<OutputStore::Bytes> outputs_;  // by tensor of the plan; without any it is written as it is
  std::set<size_t> factored_;                // tensors of the plan whose parts are stored in their place
  std::map<size_t, int64_t> index_bytes_;    // bytes of a row, for tensors that are stored as indices into a codebook
  struct StoredPart {
    PartTensor part;  // without its bytes
    OutputStore::Bytes bytes;
  };
  std::vector<StoredPart> parts_;
  std::optional<RunState> state_;
  std::shared_ptr<ThreadPool> threads_;
  std::unique_ptr<PackedWeights> packed_;  // null: the model's weights are in memory
  std::shared_ptr<const LanguageModel> model_;
  std::shared_ptr<MemoryAccounts> accounts_;
  std::vector<MemoryHold> part_memory_;
  MemoryHold output_memory_, working_memory_, statistics_memory_;
  std::unique_ptr<InputCalibration> calibration_;
  int run_ = 0, runs_ = 1;               // over all tensors: surveys, then the passes
  StatisticsMap statistics_, held_out_;  // statistics of the tensors in [measured_from_, measured_to_)
  size_t measured_from_ = 0, measured_to_ = 0;
};

}  // namespace millrace
