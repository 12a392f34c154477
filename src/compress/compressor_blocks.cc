// The decoder blocks of a compression: what is measured at a time, and the passes over each tensor.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "compress/compressor.h"

namespace millrace {
namespace {

// Of statistics at a time, without a budget; at least those of one layer.
constexpr int64_t kStatisticsBytes = int64_t{1} << 30;
// Of the rows that are held out; sums for the biases of factored matrices.
constexpr uint32_t kHeldOutNeeds = kSecondMoments | kInputSums;

// Whether the bytes are those of the dimensions.
bool part_is_whole(const PartTensor& part) {
  int64_t values = 1;
  for (const int64_t dim : part.dims) {
    if (dim < 1 || values > (int64_t{1} << 48) / dim) return false;
    values *= dim;
  }
  return values % part.format->block_values == 0 && part.format->row_bytes(values) == std::ssize(part.bytes);
}

// Whether a pruner's options keep every weight, such as sparsity=0 and pattern=4:4.
bool prunes_nothing(const PassMatrix& matrix) {
  return !matrix.kept.empty() && matrix.encoded.empty() && matrix.parts.empty() &&
         std::ranges::all_of(matrix.kept, [](uint8_t kept) { return kept != 0; });
}

bool result_is_whole(const TensorResult& result, const OutputTensor& tensor, const TensorWork& work) {
  if (std::ssize(result.matrices) != work.experts || !std::ranges::all_of(result.parts, part_is_whole)) return false;
  if (result.bytes.empty()) return result.index_bytes == 0;
  if (result.index_bytes == 0) return std::ssize(result.bytes) == tensor.bytes();
  return result.index_bytes > 0 && std::ssize(result.bytes) % result.index_bytes == 0 &&
         std::ssize(result.bytes) / result.index_bytes == work.experts * work.rows;
}

}  // namespace

Result<void> Compressor::run_blocks() {
  int surveys = 0;
  for (const NamedPass& one : passes_) surveys = std::max(surveys, one.pass->surveys());
  runs_ = surveys + 1;
  for (run_ = 0; run_ < surveys; ++run_)
    for (size_t first = 0; first < works_.size(); first = measured_to_) {
      MILLRACE_TRY_VOID(measure_range(first));
      for (size_t i = first; i < measured_to_; ++i) MILLRACE_TRY_VOID(survey_tensor(works_[i]));
    }
  for (size_t first = 0; first < works_.size();) {
    const size_t end = block_end(first);
    MILLRACE_TRY_VOID(run_block(first, end));
    if (packed_) release_input();
    first = end;
    if (options_.cancelled && first < works_.size() && options_.cancelled())
      return Error::cancelled(state_ ? "interrupted; --resume continues" : "interrupted");
  }
  return {};
}

// The pages of the input's files that the passes have read; those that are read again come from the disk.
void Compressor::release_input() const {
  for (const auto& file : input_.files.files) file->release(0, file->bytes().size());
}

// The tensors of one layer.
size_t Compressor::block_end(size_t first) const {
  size_t end = first;
  while (end < works_.size() && works_[end].layer == works_[first].layer) ++end;
  return end;
}

int64_t Compressor::statistics_bytes(const TensorWork& work) const {
  const bool held_out = calibration_ && calibration_->held_out_windows() > 0;
  return work.statistics_bytes(needs_) + (held_out ? work.statistics_bytes(kHeldOutNeeds) : 0);
}

// The layers from works_[first] on whose statistics fit the budget, and the memory for these.
Result<size_t> Compressor::range_end(size_t first) {
  const int64_t limit = options_.memory > 0 ? accounts_->left() : kStatisticsBytes;
  int64_t bytes = 0;
  std::set<LinearId> counted;
  size_t end = first;
  while (end < works_.size()) {
    size_t next = end;
    int64_t layer_bytes = 0;
    for (; next < works_.size() && works_[next].layer == works_[end].layer; ++next)
      for (const LinearId& id : works_[next].ids())
        if (counted.insert(id).second) layer_bytes += statistics_bytes(works_[next]);
    if (end > first && bytes + layer_bytes > limit) break;
    bytes += layer_bytes;
    end = next;
  }
  MILLRACE_TRY(statistics_memory_, MemoryHold::take(accounts_, "statistics", bytes,
                                                    "raise --memory; one layer is the least that is measured"));
  return end;
}

Result<void> Compressor::measure(size_t first, size_t end) {
  ++report_.ranges;
  const bool held_out = calibration_ && calibration_->held_out_windows() > 0;
  for (size_t i = first; i < end; ++i)
    for (const LinearId& id : works_[i].ids()) {
      works_[i].reserve(id, needs_, statistics_);
      if (held_out) works_[i].reserve(id, kHeldOutNeeds, held_out_);
    }
  const double size = static_cast<double>(end - first);
  const auto progress = [&](double done) { show_run(static_cast<double>(first) + done * size / 2, "calibrating"); };
  const bool more = end < works_.size();
  if (calibration_ && needs_ != kNoStatistics)
    MILLRACE_TRY_VOID(calibration_->measure(needs_, statistics_, more, progress));
  if (held_out) MILLRACE_TRY_VOID(calibration_->measure_held_out(kHeldOutNeeds, held_out_, more, progress));
  measured_from_ = first;
  measured_to_ = end;
  return {};
}

// The layers from works_[first] on, unless they are measured already.
Result<void> Compressor::measure_range(size_t first) {
  if (measured_from_ <= first && first < measured_to_) return {};
  statistics_.clear();
  held_out_.clear();
  statistics_memory_ = {};
  MILLRACE_TRY(const size_t end, range_end(first));
  return measure(first, end);
}

// The row of a pass that leaves a matrix alone because --keep or --table fixes its format.
PassRow Compressor::kept_row(const TensorWork& work) const {
  return {"left", fmt::format("kept as {} by {}", plan_.tensors[work.tensor].format->name, kept_.at(work.tensor)), {}};
}

Result<void> Compressor::survey_tensor(const TensorWork& work) {
  for (const LinearId& id : work.ids()) {
    MILLRACE_TRY(MatrixWork matrix, MatrixWork::read(plan_.tensors[work.tensor], work, id, *threads_));
    const LinearStatistics& measured = statistics_.at(id);
    for (NamedPass& one : passes_)
      if (run_ < one.pass->surveys() && !keeps_from(*one.pass, work) &&
          (measured.rows > 0 || one.pass->needs() == kNoStatistics))
        one.pass->survey(run_, matrix.matrix(), measured, *threads_);
  }
  return {};
}

// Whether these are the tensors works_[first, end).
bool Compressor::is_block(const std::vector<TensorResult>& results, size_t first, size_t end) const {
  if (results.size() != end - first) return false;
  for (size_t i = 0; i < results.size(); ++i) {
    const TensorWork& work = works_[first + i];
    if (results[i].tensor != work.tensor || !result_is_whole(results[i], plan_.tensors[work.tensor], work))
      return false;
  }
  return true;
}

// The tensors works_[first, end), unless a stopped run has done them.
Result<void> Compressor::run_block(size_t first, size_t end) {
  if (state_) {
    if (auto done = state_->read(works_[first].layer); done && is_block(*done, first, end)) {
      ++report_.resumed_blocks;
      for (TensorResult& one : *done) MILLRACE_TRY_VOID(keep_result(std::move(one)));
      return {};
    }
  }
  MILLRACE_TRY_VOID(measure_range(first));
  std::vector<TensorResult> results;
  for (size_t i = first; i < end; ++i) {
    const double range = static_cast<double>(measured_to_ - measured_from_);
    show_run(static_cast<double>(measured_from_) + range / 2 + static_cast<double>(i - measured_from_) / 2,
             plan_.tensors[works_[i].tensor].name);
    MILLRACE_TRY(TensorResult result, run_tensor(works_[i]));
    results.push_back(std::move(result));
  }
  if (state_) MILLRACE_TRY_VOID(state_->write(works_[first].layer, results));
  for (TensorResult& one : results) MILLRACE_TRY_VOID(keep_result(std::move(one)));
  return {};
}

Result<TensorResult> Compressor::run_tensor(const TensorWork& work) {
  const OutputTensor& tensor = plan_.tensors[work.tensor];
  TensorResult out{.tensor = work.tensor};
  bool changed = false;
  for (const LinearId& id : work.ids()) {
    MILLRACE_TRY(MatrixWork matrix, MatrixWork::read(tensor, work, id, *threads_));
    const LinearStatistics& measured = statistics_.at(id);
    for (NamedPass& one : passes_) {
      PassRow row{"left", "no calibration token reached it", {}};
      if (keeps_from(*one.pass, work)) {
        row = kept_row(work);
      } else if (measured.rows > 0 || one.pass->needs() == kNoStatistics) {
        MILLRACE_TRY(row, one.pass->apply(matrix.matrix(), measured, *threads_));
        if (row.action == "pruned" && prunes_nothing(matrix.matrix())) row = {"left", "it prunes no weight", {}};
      }
      changed |= row.action != "left";
      matrix.report().passes.emplace_back(one.text, std::move(row));
    }
    const auto held_out = held_out_.find(id);
    MILLRACE_TRY_VOID(matrix.finish(measured, held_out == held_out_.end() ? nullptr : &held_out->second,
                                    model_->parts().kernels, *threads_));
    int64_t& bytes = matrix.report().bytes;
    if (matrix.matrix().parts.factored)
      out.factored = true;
    else
      bytes = std::ssize(matrix.stored());
    out.bytes.insert(out.bytes.end(), matrix.stored().begin(), matrix.stored().end());
    if (matrix.matrix().has_codebook()) out.index_bytes = matrix.matrix().codebook.row_bytes(work.cols);
    for (PartTensor& part : part_tensors(matrix.matrix())) {
      bytes += std::ssize(part.bytes);
      out.parts.push_back(std::move(part));
    }
    out.matrices.push_back(std::move(matrix.report()));
  }
  if (!changed || out.factored)
    out.bytes.clear();
  else if (out.index_bytes == 0)
    MILLRACE_TRY_VOID(tensor.check_overflow(out.bytes.data()));
  return out;
}

// Into the output and the report. What is stored on the disk is charged until it is there.
Result<void> Compressor::keep_result(TensorResult result) {
  const OutputTensor& tensor = plan_.tensors[result.tensor];
  if (result.factored) factored_.insert(result.tensor);
  if (result.index_bytes > 0) index_bytes_[result.tensor] = result.index_bytes;
  int64_t part_bytes = 0;
  for (const PartTensor& part : result.parts) part_bytes += std::ssize(part.bytes);
  const int64_t more = std::max<int64_t>(0, std::ssize(result.bytes) - tensor.bytes());
  std::vector<MemoryHold> held;
  for (const auto& [account, bytes] : {std::pair("weight parts", part_bytes), std::pair("output", more)}) {
    if (bytes == 0) continue;
    MILLRACE_TRY(MemoryHold hold, MemoryHold::take(accounts_, account, bytes, "raise --memory"));
    held.push_back(std::move(hold));
  }
  report_.output_bytes += part_bytes;
  MILLRACE_TRY(outputs_[result.tensor], store_.keep(std::move(result.bytes)));
  for (PartTensor& part : result.parts) {
    MILLRACE_TRY(OutputStore::Bytes bytes, store_.keep(std::exchange(part.bytes, {})));
    parts_.push_back({std::move(part), std::move(bytes)});
  }
  if (!store_.on_disk()) std::ranges::move(held, std::back_inserter(part_memory_));
  for (CompressedMatrix& matrix : result.matrices) report_.matrices.push_back(std::move(matrix));
  return {};
}

}  // namespace millrace
