#include "compress/compressor.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/cpu.h"
#include "compress/keep_rules.h"
#include "compress/matrix_parts.h"
#include "compress/output/table_format.h"
#include "models/convert/format_choice.h"
#include "models/convert/output.h"

namespace millrace {

Result<std::vector<NamedPass>> make_passes(const CompressOptions& options) {
  std::vector<NamedPass> made;
  std::vector<std::string> texts = options.passes;
  if (options.target_bits > 0) texts.push_back(fmt::format("llm_mq:bits={}", options.target_bits));
  if (texts.empty()) return Error::user("--pass: is missing; give at least one, such as gptq:format=q4_0");
  for (const std::string& text : texts) {
    MILLRACE_TRY(auto pass, make_pass(text));
    const auto fixes = [](const NamedPass& one) { return one.pass->fixes_levels(); };
    const auto fixed = std::ranges::find_if(made, fixes);
    if (fixed != made.end() && options.target_bits > 0 && made.size() + 1 == texts.size())
      return Error::user(fmt::format(
          "--target-bits: chooses formats and levels itself (pass llm_mq), so --pass {} cannot be before it",
          fixed->text));
    if (fixed != made.end() && (!pass->corrects() || pass->fixes_levels()))
      return Error::user(
          fmt::format("--pass {}: fixes the levels of the output, so it must be the last one", fixed->text));
    if (!made.empty() && made.back().pass->orders_inputs())
      return Error::user(
          fmt::format("--pass {}: changes the order of the inputs, so it must be the last one", made.back().text));
    if (pass->needs() != kNoStatistics && options.calibration.name.empty())
      return Error::user(fmt::format("--pass {}: needs a calibration text; give one with --calibrate", text));
    made.push_back({text, std::move(pass)});
  }
  for (const NamedPass& one : made)
    if (one.pass->structural() && made.size() > 1)
      return Error::user(fmt::format(
          "--pass {}: makes another model, so it must be the only pass; compress its output in a second run",
          one.text));
  return made;
}

Result<CompressReport> Compressor::run() {
  MILLRACE_TRY_VOID(open());
  StructuralPass* const structural = passes_.front().pass->structural();
  const auto chooses = [](const NamedPass& one) { return !one.pass->choices().empty(); };
  if (options_.dry_run && !structural && std::ranges::none_of(passes_, chooses)) return preview();
  MILLRACE_TRY_VOID(calibrate());
  if (structural) {
    MILLRACE_TRY_VOID(reserve_output());
    MILLRACE_TRY_VOID(reshape(*structural));
    return options_.dry_run ? preview() : finish();
  }
  if (options_.resume && !options_.dry_run) MILLRACE_TRY_VOID(open_state());
  for (NamedPass& one : passes_)
    if (chooses(one)) MILLRACE_TRY_VOID(choose_formats(*one.pass));
  if (options_.dry_run) return preview();
  MILLRACE_TRY_VOID(reserve_output());
  MILLRACE_TRY_VOID(run_blocks());
  return finish();
}

Result<void> Compressor::open() {
  if (!options_.output.ends_with(".gguf") && !(options_.dry_run && options_.output.empty()))
    return Error::user(fmt::format("{}: the output is a GGUF file; its name must end in .gguf", options_.output));
  MILLRACE_TRY(passes_, make_passes(options_));
  for (const NamedPass& one : passes_) {
    needs_ |= one.pass->needs();
    report_.passes.push_back(one.text);
  }
  if (passes_.front().pass->structural() && (options_.resume || !options_.keep.empty()))
    return Error::user(fmt::format("--pass {}: makes another model at once, so it has no blocks or matrices for {}",
                                   passes_.front().text, options_.resume ? "--resume" : "--keep"));
  if (options_.calibration.held_out > 0 && options_.calibration.name.empty())
    return Error::user("--held-out: is a part of the calibration text; give one with --calibrate");
  MILLRACE_TRY(const std::vector<KeepRule> keep, read_keep_rules(options_.keep));
  MILLRACE_TRY(input_, open_conversion_input(options_.input, "", open_model));
  if (input_.checkpoint)
    return Error::unsupported(
        fmt::format("{}: llama2.c checkpoints cannot be compressed; convert it to GGUF first", options_.input));
  if (input_.spec.encoder)
    return Error::unsupported(
        fmt::format("{}: is an encoder ({}), which cannot be compressed", options_.input, input_.spec.arch));
  if (!options_.dry_run) MILLRACE_TRY_VOID(check_output(options_.output, options_.force, input_.paths()));
  std::string format;
  for (const NamedPass& one : passes_)
    if (!one.pass->format().empty()) format = one.pass->format();
  ConvertReport converted;
  MILLRACE_TRY(plan_,
               plan_conversion(input_, true, {.format = format.empty() ? nullptr : find_format(format)}, converted));
  MILLRACE_TRY(kept_, apply_keep_rules(keep, plan_, report_.notes));
  MILLRACE_TRY_VOID(fix_table(!format.empty()));
  outputs_.resize(plan_.tensors.size());
  const auto kept = [&](const std::string& name) {
    return std::ranges::any_of(kept_, [&](const auto& one) { return plan_.tensors[one.first].name == name; });
  };
  for (const auto& one : converted.fallbacks)
    if (!kept(one.name)) report_.notes.push_back(fmt::format("{} is stored as {}: {}", one.name, one.format, one.why));
  for (const std::string& name : converted.left_out) report_.notes.push_back(fmt::format("{} is left out", name));
  report_.notes.insert(report_.notes.end(), converted.notes.begin(), converted.notes.end());
  report_.keep = options_.keep;
  report_.dry_run = options_.dry_run;
  report_.input = options_.input;
  report_.output = options_.output;
  report_.architecture = converted.architecture;
  MILLRACE_TRY(works_, plan_works(plan_, input_.spec));
  return {};
}

// `rounds`: a pass has a format of its own. --keep goes before --table, and so does a pass that chooses the format of
// each tensor.
Result<void> Compressor::fix_table(bool rounds) {
  MILLRACE_TRY(const Format* const format, read_table_format(options_.table));
  const auto chooses = [](const NamedPass& one) { return !one.pass->choices().empty(); };
  const auto table = find_table(plan_);
  if (!format || !rounds || !table || kept_.contains(*table) || std::ranges::any_of(passes_, chooses)) return {};
  rounded_table_ = raise_table_format(*format, plan_);
  if (rounded_table_) kept_.emplace(*table, "--table " + options_.table);
  return {};
}

PackedWeights::~PackedWeights() {
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
}

int64_t Compressor::largest_layer(const std::function<int64_t(const TensorWork&)>& bytes) const {
  int64_t most = 0;
  for (size_t first = 0; first < works_.size();) {
    const size_t end = block_end(first);
    int64_t layer = 0;
    for (; first < end; ++first) layer += bytes(works_[first]);
    most = std::max(most, layer);
  }
  return most;
}

// Whether the weights, the output and one layer's statistics would leave less than a quarter of the budget: then the
// weights are read layer by layer, and finished tensors and residual streams are stored in files.
bool Compressor::needs_disk() const {
  if (options_.memory <= 0 || passes_.front().pass->structural() || input_.files.files.empty()) return false;
  int64_t bytes = program_memory() + largest_matrix().bytes;
  for (const StoredTensor& stored : input_.files.tensors) bytes += stored.tensor.bytes;
  for (const TensorWork& work : works_) bytes += plan_.tensors[work.tensor].bytes();
  bytes += largest_layer([&](const TensorWork& work) { return work.experts * work.statistics_bytes(needs_); });
  return bytes > options_.memory - options_.memory / 4;
}

// A pass behind another one may see changed inputs, whose moments it computes. Formats that are chosen later may be
// any.
Compressor::LargestMatrix Compressor::largest_matrix() const {
  const bool chosen = std::ranges::any_of(passes_, [](const NamedPass& one) { return !one.pass->choices().empty(); });
  LargestMatrix most;
  for (const TensorWork& work : works_) {
    const OutputTensor& tensor = plan_.tensors[work.tensor];
    int64_t bytes = work.working_bytes(needs_, chosen ? work.cols * 4 : tensor.format->row_bytes(work.cols));
    bool changed = false;
    for (const NamedPass& one : passes_) {
      bytes += one.pass->working_bytes(work.rows, work.cols);
      changed |= &one != &passes_.front() && (one.pass->needs() & kSecondMoments);
    }
    if (changed) bytes += changed_moments_bytes(work.cols);
    if (bytes > most.bytes) most = {tensor.name, work.rows, work.cols, bytes};
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
  if (needs_disk()) {
    const std::string beside = options_.output.empty() ? options_.input : options_.output;
    packed_ = std::make_unique<PackedWeights>(beside);
    load.weights = "mapped:ahead=0";
    load.packed_cache_path = packed_->path;
    MILLRACE_TRY_VOID(store_.use_disk(beside));
  }
  MILLRACE_TRY(model_, LanguageModel::load(options_.input, load));
  accounts_ = model_->parts().accounts;
  threads_ = std::make_shared<ThreadPool>(options_.threads > 0 ? options_.threads : available_cores());
  const LargestMatrix most = largest_matrix();
  MILLRACE_TRY(
      working_memory_,
      MemoryHold::take(accounts_, "one matrix", most.bytes,
                       fmt::format("raise --memory; the largest matrix, {} with {} x {} weights, takes as much",
                                   most.name, most.rows, most.cols)));
  return needs_ == kNoStatistics && !(options_.calibration.held_out > 0) ? Result<void>() : read_text();
}

Result<void> Compressor::read_text() {
  CalibrationOptions calibration = options_.calibration;
  if (!options_.output.empty()) calibration.scratch = options_.output;
  if (packed_)
    calibration.stream_bytes = 0;
  else if (options_.memory > 0)
    calibration.stream_bytes = accounts_->left() / 4;
  MILLRACE_TRY(calibration_, InputCalibration::create(model_, threads_, calibration));
  report_.calibration_name = options_.calibration.name;
  if (std::string warning = text_warning(options_.calibration.name, options_.calibration.text); !warning.empty())
    report_.notes.push_back(std::move(warning));
  report_.calibration_hash = calibration_->text_hash();
  report_.calibration_tokens = calibration_->tokens();
  report_.calibration_windows = calibration_->windows();
  report_.calibration_context = calibration_->context();
  report_.held_out_windows = calibration_->held_out_windows();
  report_.held_out_tokens = report_.held_out_windows * calibration_->context();
  int64_t widest = 0;
  for (const TensorWork& work : works_) widest = std::max(widest, work.cols);
  if (calibration_->tokens() < widest && (needs_ & kSecondMoments))
    report_.notes.push_back(
        fmt::format("{} calibration tokens are fewer than the {} columns of the widest matrix; use a longer text",
                    calibration_->tokens(), widest));
  return {};
}

// On the disk, only the tensors of one layer are in memory.
Result<void> Compressor::reserve_output() {
  const auto bytes = [&](const TensorWork& work) { return plan_.tensors[work.tensor].bytes(); };
  int64_t output_bytes = 0;
  for (const TensorWork& work : works_) output_bytes += bytes(work);
  if (store_.on_disk()) output_bytes = largest_layer(bytes);
  MILLRACE_TRY(output_memory_, MemoryHold::take(accounts_, "output", output_bytes, "raise --memory"));
  return {};
}

// Measures all layers before the passes run. What fits the budget at once is not measured again.
Result<void> Compressor::choose_formats(Pass& pass) {
  std::vector<FormatCosts> tensors;
  for (size_t first = 0; first < works_.size(); first = measured_to_) {
    MILLRACE_TRY_VOID(measure_range(first));
    for (size_t i = first; i < measured_to_; ++i) {
      const OutputTensor& tensor = plan_.tensors[works_[i].tensor];
      FormatCosts costs{.tensor = tensor.name, .weights = works_[i].experts * works_[i].rows * works_[i].cols};
      const bool fixed = kept_.contains(works_[i].tensor);
      for (const Format* choice : fixed ? std::vector<const Format*>() : pass.choices()) {
        const Format* format = fitting_format(*choice, works_[i].cols);
        if (format &&
            std::ranges::find(costs.candidates, format, &FormatCosts::Candidate::format) == costs.candidates.end())
          costs.candidates.push_back({format, costs.weights / format->block_values * format->block_bytes, 0});
      }
      if (costs.candidates.empty()) costs.candidates.push_back({tensor.format, tensor.bytes(), 0});
      for (const LinearId& id : costs.candidates.size() > 1 ? works_[i].ids() : std::vector<LinearId>()) {
        MILLRACE_TRY(MatrixWork matrix, MatrixWork::read(tensor, works_[i], id, *threads_));
        for (FormatCosts::Candidate& candidate : costs.candidates) {
          matrix.matrix().format = candidate.format;
          candidate.cost += pass.format_cost(matrix.matrix(), statistics_.at(id), *threads_);
        }
      }
      tensors.push_back(std::move(costs));
    }
  }
  MILLRACE_TRY(const std::vector<size_t> chosen, pass.choose_formats(tensors));
  for (size_t i = 0; i < works_.size(); ++i)
    plan_.tensors[works_[i].tensor].format = tensors[i].candidates[chosen[i]].format;
  return {};
}

Result<void> Compressor::reshape(StructuralPass& pass) {
  show(0.1, "calibrating");
  for (const OutputTensor& tensor : plan_.tensors) report_.input_bytes += tensor.bytes();
  StructuralWork work{model_->parts().model->spec(),
                      report_.architecture,
                      plan_,
                      calibration_.get(),
                      model_->parts().kernels,
                      *threads_,
                      accounts_,
                      report_.structure};
  MILLRACE_TRY_VOID(pass.reshape(work));
  outputs_.clear();
  outputs_.resize(plan_.tensors.size());
  return {};
}

Result<CompressReport> compress_model(const CompressOptions& options) { return Compressor(options).run(); }

}  // namespace millrace
