// The steps of a conversion: open, describe the output, compare both descriptions, list the tensors, write them.
#include "models/convert/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/ordered_json.h"
#include "formats/format.h"
#include "formats/weighted_rounding.h"
#include "loader/importance_file.h"
#include "models/arch/writing.h"
#include "models/convert/conversion.h"
#include "models/convert/format_choice.h"
#include "models/convert/matrix_scales.h"
#include "models/convert/output.h"
#include "models/convert/task_adapters.h"
#include "models/layer_mixers.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

std::string format_names(bool gguf) {
  std::string out;
  for (const Format* format : formats().members())
    if (can_store(*format, gguf)) out += (out.empty() ? "" : ", ") + std::string(format->name);
  return out;
}

Result<ConversionTarget> find_target(const std::string& given, bool gguf) {
  if (given.empty()) return ConversionTarget();
  std::string name = given;
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (const FormatMix* mix = gguf ? find_format_mix(name) : nullptr)
    return ConversionTarget{.format = find_format(mix->base), .mix = mix};
  const Format* format = find_format(name);
  if (format && can_store(*format, gguf)) return ConversionTarget{.format = format};
  const char* kind = gguf ? "GGUF files" : "Hugging Face folders";
  const std::string what = format ? fmt::format("{} cannot store it", kind) : "unknown format";
  return Error::unsupported(fmt::format("--format {}: {}; choose one of {}{}", given, what, format_names(gguf),
                                        gguf ? ", or a mix: " + format_mix_names() : ""));
}

void count(ConvertReport& report, const std::vector<OutputTensor>& tensors) {
  for (const OutputTensor& tensor : tensors) {
    auto& [number, bytes] = report.formats[std::string(tensor.format->name)];
    ++number;
    bytes += tensor.bytes();
    report.bytes += tensor.bytes();
    for (const SourceTensor& part : tensor.parts) report.parameters += part.values ? 0 : part.rows * part.cols;
  }
  report.tensors = static_cast<int64_t>(tensors.size());
}

// A folder stores plain numbers: what quantized matrices became.
void note_expanded(ConvertReport& report, const std::vector<OutputTensor>& tensors) {
  std::map<std::pair<std::string, std::string>, int64_t> counts;
  for (const OutputTensor& tensor : tensors) {
    const StoredTensor* stored = tensor.parts.empty() ? nullptr : tensor.parts.front().stored;
    if (stored && stored->tensor.format && stored->tensor.format->block_values > 1)
      ++counts[{std::string(stored->tensor.format->name), std::string(tensor.format->name)}];
  }
  for (const auto& [formats, number] : counts)
    report.notes.push_back(fmt::format("{} matrices of {} became {}: a folder stores plain numbers{}", number,
                                       formats.first, formats.second,
                                       formats.second == "f32" ? "; --format bf16 takes half the space" : ""));
}

std::function<void(int64_t, int64_t)> fraction_of(const ConvertOptions& options) {
  if (!options.progress) return {};
  return [&options](int64_t done, int64_t all) {
    options.progress(static_cast<double>(done) / static_cast<double>(std::max<int64_t>(1, all)));
  };
}

// An input that was zero on the whole text counts little, not nothing; else its weights could become anything.
void raise_zeros(std::vector<float>& weights) {
  double sum = 0;
  for (float weight : weights) sum += weight;
  const double mean = sum / static_cast<double>(weights.size());
  const float least = mean > 0 ? static_cast<float>(1e-6 * mean) : 1.0f;
  for (float& weight : weights) weight = std::max(weight, least);
}

// Reads the weights of the matrices that will be rounded, and says in the metadata where they are from: llama.cpp's
// keys.
Result<void> weight_tensors(const ConvertOptions& options, const Format* target, bool gguf, ConversionPlan& plan,
                            ConvertReport& report) {
  if (!gguf || !target || !rounds_by_weights(*target)) {
    std::string usable;
    for (const Format* format : formats().members())
      if (can_store(*format, true) && rounds_by_weights(*format))
        usable += (usable.empty() ? "" : ", ") + std::string(format->name);
    const std::string given = !gguf     ? "the output is a folder"
                              : !target ? "no --format is given"
                                        : fmt::format("rounding to {} uses no weights", target->name);
    return Error::user(
        fmt::format("--imatrix {}: {}; it weights the rounding to formats of 2 to 6 bits in a GGUF file; give "
                    "--format q4_k or another of them: {}",
                    options.importance, given, usable));
  }
  MILLRACE_TRY(const ImportanceFile file, read_importance_file(options.importance));
  int64_t used = 0;
  for (OutputTensor& tensor : plan.tensors) {
    if (!rounds_by_weights(*tensor.format) || tensor.dims.size() < 2) continue;
    MILLRACE_TRY(tensor.weights, file.weights(tensor.name, tensor.experts(), tensor.dims.back()));
    if (tensor.weights.empty()) {
      report.notes.push_back(fmt::format("{} is not in {}: rounded without weights", tensor.name, options.importance));
      continue;
    }
    raise_zeros(tensor.weights);
    ++used;
  }
  if (used == 0) return Error::user(fmt::format("--imatrix {}: has none of this model's matrices", options.importance));
  plan.writer.set_string("quantize.imatrix.file", fs::path(options.importance).filename().string());
  if (!file.datasets.empty()) plan.writer.set_string("quantize.imatrix.dataset", file.datasets.front());
  plan.writer.set_u32("quantize.imatrix.entries_count", static_cast<uint32_t>(file.entries.size()));
  if (file.chunks > 0) plan.writer.set_u32("quantize.imatrix.chunks_count", static_cast<uint32_t>(file.chunks));
  return {};
}

}  // namespace

Result<ConvertReport> convert_model(const ConvertOptions& options, ThreadPool& pool) {
  const bool gguf = options.output.ends_with(".gguf");
  if (options.output.empty()) return Error::user("output: is missing; give a .gguf file or a folder");
  for (const char* ending : {".safetensors", ".bin", ".json"})
    if (options.output.ends_with(ending))
      return Error::user(
          fmt::format("{}: is neither a .gguf file nor a folder to write a Hugging Face model into", options.output));
  MILLRACE_TRY(ConversionTarget target, find_target(options.format, gguf));
  MILLRACE_TRY(ConversionInput input, open_conversion_input(options.input, options.tokenizer, options.open));
  if (input.spec.encoder && input.is_gguf() && !gguf)
    return Error::unsupported(
        fmt::format("{}: a GGUF file of an encoder ({}) cannot become a folder; convert it to another GGUF file",
                    options.input, input.spec.arch));
  if (input.spec.encoder && !input.is_gguf() && gguf && options.pooling_type) {
    MILLRACE_TRY(input.pooling_type, options.pooling_type(input.files));
  }
  if (!options.task.empty() && !gguf)
    return Error::user(
        fmt::format("--task {}: a folder would hold the adapters, too; write a .gguf file", options.task));
  MILLRACE_TRY_VOID(check_output(options.output, options.force, input.paths()));
  std::string task_prefix;
  if (!options.task.empty()) {
    MILLRACE_TRY(task_prefix, merge_task_adapters(input.files, options.task));
  }

  target.layers = std::ssize(input.spec.layers);
  target.tied = std::ranges::none_of(input.files.tensors, [](const StoredTensor& stored) {
    return stored.name == "output.weight" || stored.name == "lm_head.weight";
  });
  ConvertReport report;
  report.input_kind = input.kind_name();
  report.output_kind = gguf ? "gguf" : "huggingface";
  if (!task_prefix.empty())
    report.notes.push_back(
        fmt::format("texts of the task {} begin with '{}', which clients must add", options.task, task_prefix));
  MILLRACE_TRY(ConversionPlan plan, plan_conversion(input, gguf, target, report));
  if (!options.importance.empty()) MILLRACE_TRY_VOID(weight_tensors(options, target.format, gguf, plan, report));
  if (gguf) {
    scale_matrices(plan.tensors, pool, [](size_t) { return true; });
    for (OutputTensor& tensor : plan.tensors)
      plan.writer.add_tensor(tensor.name, tensor.format, tensor.dims,
                             [&tensor, &pool](uint8_t* to, int64_t) { return tensor.produce(to, pool); });
    MILLRACE_TRY_VOID(plan.writer.write(options.output, fraction_of(options)));
  } else {
    MILLRACE_TRY_VOID(write_folder(options.output, plan.texts, plan.copies, plan.tensors, pool, fraction_of(options)));
  }
  count(report, plan.tensors);
  if (!gguf) note_expanded(report, plan.tensors);
  return report;
}

}  // namespace millrace
