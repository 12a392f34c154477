// Compressor: runs one compression. It opens the input and plans the output. For each range of layers, it measures
// statistics and runs the passes over the matrices. Then it writes the output. Only compress_model() uses it. Not
// thread-safe.
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

// Creates the passes of options.passes and options.target_bits. Errors: user.
Result<std::vector<NamedPass>> make_passes(const CompressOptions& options);

// A file with the model's packed weights, which is removed with this object.
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
  // The matrix for which the passes need most memory.
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
  // Returns true if the pass must not change the tensor because its format is fixed. Exception: a sparse format stores
  // the weights that pruners keep, so passes that do not set a format may change such a tensor.
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
  // Shows progress after `done` of the tensors in the current run over all tensors.
  void show_run(double done, const std::string& what) const {
    show((run_ + done / static_cast<double>(works_.size())) / runs_, what);
  }

  const CompressOptions& options_;
  CompressReport report_;
  std::vector<NamedPass> passes_;
  uint32_t needs_ = kNoStatistics;
  ConversionInput input_;
  ConversionPlan plan_;
  std::map<size_t, std::string> kept_;  // by tensor of the plan with a fixed format: the option that fixes it
  // Format that the passes would have used for the table, if --table replaced it; or null.
  const Format* rounded_table_ = nullptr;
  std::vector<TensorWork> works_;  // by layer
  OutputStore store_;
  std::vector<OutputStore::Bytes> outputs_;  // by tensor of the plan; a tensor without bytes is written unchanged
  std::set<size_t> factored_;                // tensors of the plan in whose place only the parts are stored
  std::map<size_t, int64_t> index_bytes_;    // by tensor that is stored as indices into a codebook: bytes of a row
  struct StoredPart {
    PartTensor part;  // part.bytes is empty
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
  int run_ = 0, runs_ = 1;               // index and number of runs over all tensors: surveys, then the passes
  StatisticsMap statistics_, held_out_;  // statistics of the tensors in [measured_from_, measured_to_)
  size_t measured_from_ = 0, measured_to_ = 0;
};

}  // namespace millrace
