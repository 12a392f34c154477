// The steps of a compression: open, plan the output, measure a range of layers, run the passes over its matrices,
// write.
#include "compress/compress.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "base/cpu.h"
#include "base/ordered_json.h"
#include "compress/matrix_parts.h"
#include "compress/matrix_work.h"
#include "models/convert/conversion.h"
#include "models/convert/gguf_keys.h"
#include "models/convert/output.h"
#include "run/language_model.h"

namespace millrace {
namespace {

// Of statistics at a time, without a budget; at least those of one layer.
constexpr int64_t kStatisticsBytes = int64_t{1} << 30;

struct NamedPass {
  std::string text;
  std::unique_ptr<Pass> pass;
};

Result<std::vector<NamedPass>> make_passes(const CompressOptions& options) {
  std::vector<NamedPass> made;
  if (options.passes.empty()) return Error::user("--pass: is missing; give at least one, such as gptq:format=q4_0");
  for (const std::string& text : options.passes) {
    MILLRACE_TRY(auto pass, make_pass(text));
    const auto fixes = [](const NamedPass& one) { return one.pass->fixes_levels(); };
    const auto fixed = std::ranges::find_if(made, fixes);
    if (fixed != made.end() && (!pass->corrects() || pass->fixes_levels()))
      return Error::user(
          fmt::format("--pass {}: fixes the levels of the output, so it must be the last one", fixed->text));
    if (pass->needs() != kNoStatistics && options.calibration.name.empty())
      return Error::user(fmt::format("--pass {}: needs a calibration text; give one with --calibrate", text));
    made.push_back({text, std::move(pass)});
  }
  return made;
}

class Compressor {
 public:
  explicit Compressor(const CompressOptions& options) : options_(options) {}

  Result<CompressReport> run() {
    MILLRACE_TRY_VOID(open());
    MILLRACE_TRY_VOID(calibrate());
    for (size_t first = 0; first < works_.size();) {
      size_t end = first;
      MILLRACE_TRY(const MemoryHold hold, next_range(first, end));
      MILLRACE_TRY_VOID(run_range(first, end));
      first = end;
    }
    MILLRACE_TRY_VOID(write());
    report_.memory = accounts_->list();
    return std::move(report_);
  }

 private:
  Result<void> open();
  Result<void> calibrate();
  Result<MemoryHold> next_range(size_t first, size_t& end);
  Result<void> run_range(size_t first, size_t end);
  Result<void> run_tensor(const TensorWork& work, const StatisticsMap& statistics);
  Result<void> keep_parts(const PassMatrix& matrix);
  Result<void> write();
  int64_t working_bytes() const;
  void show(double fraction, const std::string& what) const {
    if (options_.progress) options_.progress(fraction, what);
  }

  const CompressOptions& options_;
  CompressReport report_;
  std::vector<NamedPass> passes_;
  uint32_t needs_ = kNoStatistics;
  ConversionInput input_;
  ConversionPlan plan_;
  std::vector<TensorWork> works_;              // by layer
  std::vector<std::vector<uint8_t>> outputs_;  // by tensor of the plan; empty: written as it is
  std::map<size_t, int64_t> index_bytes_;      // of a row, of tensors that are stored as indices into a codebook
  std::vector<PartTensor> parts_;
  std::shared_ptr<ThreadPool> threads_;
  std::shared_ptr<const LanguageModel> model_;
  std::shared_ptr<MemoryAccounts> accounts_;
  std::vector<MemoryHold> part_memory_;
  MemoryHold output_memory_, working_memory_;
  std::unique_ptr<InputCalibration> calibration_;
};

Result<void> Compressor::open() {
  if (!options_.output.ends_with(".gguf"))
    return Error::user(fmt::format("{}: the output is a GGUF file; its name must end in .gguf", options_.output));
  MILLRACE_TRY(passes_, make_passes(options_));
  for (const NamedPass& one : passes_) {
    needs_ |= one.pass->needs();
    report_.passes.push_back(one.text);
  }
  MILLRACE_TRY(input_, open_conversion_input(options_.input, "", open_model));
  if (input_.checkpoint)
    return Error::unsupported(
        fmt::format("{}: llama2.c checkpoints cannot be compressed; convert it to GGUF first", options_.input));
  MILLRACE_TRY_VOID(check_output(options_.output, options_.force, input_.paths()));
  std::string format;
  for (const NamedPass& one : passes_)
    if (!one.pass->format().empty()) format = one.pass->format();
  ConvertReport converted;
  MILLRACE_TRY(plan_, plan_conversion(input_, true, format.empty() ? nullptr : find_format(format), converted));
  outputs_.resize(plan_.tensors.size());
  for (const auto& one : converted.fallbacks)
    report_.notes.push_back(fmt::format("{} is stored as {}: {}", one.name, one.format, one.why));
  for (const std::string& name : converted.left_out) report_.notes.push_back(fmt::format("{} is left out", name));
  report_.notes.insert(report_.notes.end(), converted.notes.begin(), converted.notes.end());
  report_.input = options_.input;
  report_.output = options_.output;
  report_.architecture = converted.architecture;
  MILLRACE_TRY(works_, plan_works(plan_, input_.spec));
  return {};
}

int64_t Compressor::working_bytes() const {
  int64_t most = 0;
  for (const TensorWork& work : works_) {
    int64_t bytes = work.working_bytes(needs_);
    for (const NamedPass& one : passes_) bytes += one.pass->working_bytes(work.rows, work.cols);
    most = std::max(most, bytes);
  }
  return most;
}

// Loads the model and reads the text.
Result<void> Compressor::calibrate() {
  LoadOptions load;
  load.threads = options_.threads;
  load.context = options_.calibration.context;
  load.memory = options_.memory;
  load.progress = [this](double fraction) { show(fraction, "loading"); };
  MILLRACE_TRY(model_, LanguageModel::load(options_.input, load));
  accounts_ = model_->parts().accounts;
  threads_ = std::make_shared<ThreadPool>(options_.threads > 0 ? options_.threads : available_cores());
  int64_t output_bytes = 0;
  for (const TensorWork& work : works_) output_bytes += plan_.tensors[work.tensor].bytes();
  MILLRACE_TRY(output_memory_, MemoryHold::take(accounts_, "output", output_bytes, "raise --memory"));
  MILLRACE_TRY(working_memory_, MemoryHold::take(accounts_, "one matrix", working_bytes(), "raise --memory"));
  if (needs_ == kNoStatistics) return {};
  MILLRACE_TRY(calibration_, InputCalibration::create(model_, threads_, options_.calibration));
  report_.calibration_name = options_.calibration.name;
  report_.calibration_hash = calibration_->text_hash();
  report_.calibration_tokens = calibration_->tokens();
  report_.calibration_windows = calibration_->windows();
  report_.calibration_context = calibration_->context();
  int64_t widest = 0;
  for (const TensorWork& work : works_) widest = std::max(widest, work.cols);
  if (calibration_->tokens() < widest && (needs_ & kSecondMoments))
    report_.notes.push_back(
        fmt::format("{} calibration tokens are fewer than the {} columns of the widest matrix; use a longer text",
                    calibration_->tokens(), widest));
  return {};
}

// The layers from works_[first] on whose statistics fit the budget.
Result<MemoryHold> Compressor::next_range(size_t first, size_t& end) {
  const int64_t limit = options_.memory > 0 ? accounts_->left() : kStatisticsBytes;
  int64_t bytes = 0;
  std::set<LinearId> counted;
  for (end = first; end < works_.size();) {
    size_t next = end;
    int64_t layer_bytes = 0;
    for (; next < works_.size() && works_[next].layer == works_[end].layer; ++next)
      for (const LinearId& id : works_[next].ids())
        if (counted.insert(id).second) layer_bytes += works_[next].statistics_bytes(needs_);
    if (end > first && bytes + layer_bytes > limit) break;
    bytes += layer_bytes;
    end = next;
  }
  ++report_.ranges;
  return MemoryHold::take(accounts_, "statistics", bytes, "raise --memory; one layer is the least that is measured");
}

Result<void> Compressor::run_range(size_t first, size_t end) {
  StatisticsMap statistics;
  for (size_t i = first; i < end; ++i)
    for (const LinearId& id : works_[i].ids()) works_[i].reserve(id, needs_, statistics);
  const auto part = [&](double done) {
    return (static_cast<double>(first) + done) / static_cast<double>(works_.size());
  };
  const double size = static_cast<double>(end - first);
  if (calibration_)
    MILLRACE_TRY_VOID(
        calibration_->measure(needs_, statistics, [&](double done) { show(part(done * size / 2), "calibrating"); }));
  for (size_t i = first; i < end; ++i) {
    show(part(size / 2 + static_cast<double>(i - first) / 2), plan_.tensors[works_[i].tensor].name);
    MILLRACE_TRY_VOID(run_tensor(works_[i], statistics));
  }
  return {};
}

Result<void> Compressor::run_tensor(const TensorWork& work, const StatisticsMap& statistics) {
  const OutputTensor& tensor = plan_.tensors[work.tensor];
  std::vector<uint8_t> bytes;
  bool changed = false;
  for (const LinearId& id : work.ids()) {
    MILLRACE_TRY(MatrixWork matrix, MatrixWork::read(tensor, work, id, *threads_));
    const LinearStatistics& measured = statistics.at(id);
    for (NamedPass& one : passes_) {
      PassRow row{"left", "no calibration token reached it", {}};
      if (measured.rows > 0 || one.pass->needs() == kNoStatistics) {
        MILLRACE_TRY(row, one.pass->apply(matrix.matrix(), measured, *threads_));
      }
      changed |= row.action != "left";
      matrix.report().passes.emplace_back(one.text, std::move(row));
    }
    MILLRACE_TRY_VOID(matrix.finish(measured, model_->parts().kernels, *threads_));
    bytes.insert(bytes.end(), matrix.stored().begin(), matrix.stored().end());
    if (matrix.matrix().has_codebook()) index_bytes_[work.tensor] = matrix.matrix().codebook.row_bytes(work.cols);
    MILLRACE_TRY_VOID(keep_parts(matrix.matrix()));
    report_.matrices.push_back(std::move(matrix.report()));
  }
  if (!changed) return {};
  if (!index_bytes_.contains(work.tensor)) MILLRACE_TRY_VOID(tensor.check_overflow(bytes.data()));
  if (const int64_t more = std::ssize(bytes) - tensor.bytes(); more > 0) {
    MILLRACE_TRY(MemoryHold hold, MemoryHold::take(accounts_, "output", more, "raise --memory"));
    part_memory_.push_back(std::move(hold));
  }
  outputs_[work.tensor] = std::move(bytes);
  return {};
}

Result<void> Compressor::keep_parts(const PassMatrix& matrix) {
  int64_t bytes = 0;
  for (PartTensor& part : part_tensors(matrix)) {
    bytes += static_cast<int64_t>(part.bytes.size());
    parts_.push_back(std::move(part));
  }
  if (bytes == 0) return {};
  report_.output_bytes += bytes;
  MILLRACE_TRY(MemoryHold hold, MemoryHold::take(accounts_, "weight parts", bytes, "raise --memory"));
  part_memory_.push_back(std::move(hold));
  return {};
}

Result<void> Compressor::write() {
  std::vector<std::string> all;  // those of the input, too
  if (input_.is_gguf())
    if (const auto before = input_.files.config->find("millrace.compress.passes");
        before != input_.files.config->end() && before->is_array())
      for (const auto& one : *before)
        if (one.is_string()) all.push_back(one.get<std::string>());
  all.insert(all.end(), report_.passes.begin(), report_.passes.end());
  plan_.writer.set_strings("millrace.compress.passes", all);
  if (calibration_) {
    plan_.writer.set_string("millrace.compress.calibration_xxh3_128", report_.calibration_hash);
    plan_.writer.set_u64("millrace.compress.calibration_tokens", static_cast<uint64_t>(report_.calibration_tokens));
  }
  std::map<std::string_view, int64_t> values;  // of matrices, by format
  for (size_t i = 0; i < plan_.tensors.size(); ++i) {
    const OutputTensor& tensor = plan_.tensors[i];
    for (const SourceTensor& part : tensor.parts)
      if (part.stored) report_.input_bytes += part.stored->tensor.format->row_bytes(part.rows * part.cols);
    report_.output_bytes += outputs_[i].empty() ? tensor.bytes() : std::ssize(outputs_[i]);
    const Format* format = tensor.format;
    std::vector<int64_t> dims = tensor.dims;
    if (const auto indices = index_bytes_.find(i); indices != index_bytes_.end()) {
      format = &codebook_indices();
      dims.back() = indices->second;
    }
    if (dims.size() > 1)
      values[format->name] += std::accumulate(tensor.dims.begin(), tensor.dims.end(), int64_t{1}, std::multiplies<>());
    plan_.writer.add_tensor(tensor.name, format, std::move(dims), [&, i](uint8_t* to, int64_t) -> Result<void> {
      if (outputs_[i].empty()) return tensor.produce(to, *threads_);
      std::ranges::copy(outputs_[i], to);
      return {};
    });
  }
  set_file_type(plan_.writer, values);
  for (const PartTensor& part : parts_)
    plan_.writer.add_tensor(part.name, part.format, part.dims, [&](uint8_t* to, int64_t) -> Result<void> {
      std::ranges::copy(part.bytes, to);
      return {};
    });
  return plan_.writer.write(options_.output, [this](int64_t done, int64_t total) {
    show(static_cast<double>(done) / static_cast<double>(std::max<int64_t>(1, total)), "writing");
  });
}

}  // namespace

Result<CompressReport> compress_model(const CompressOptions& options) { return Compressor(options).run(); }

}  // namespace millrace
