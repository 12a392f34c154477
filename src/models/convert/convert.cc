// The steps of a conversion: open, describe the output, compare both descriptions, list the tensors, write them.
#include "models/convert/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/ordered_json.h"
#include "formats/format.h"
#include "models/arch/writing.h"
#include "models/convert/conversion.h"
#include "models/convert/format_choice.h"
#include "models/convert/output.h"
#include "models/mixers/mixer.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

std::string format_names(bool gguf) {
  std::string out;
  for (const Format* format : formats().members())
    if (can_store(*format, gguf)) out += (out.empty() ? "" : ", ") + std::string(format->name);
  return out;
}

Result<const Format*> find_target(const std::string& name, bool gguf) {
  if (name.empty()) return static_cast<const Format*>(nullptr);
  const Format* format = find_format(name);
  if (format && can_store(*format, gguf)) return format;
  const char* kind = gguf ? "GGUF files" : "Hugging Face folders";
  const std::string what = format ? fmt::format("{} cannot store it", kind) : "unknown format";
  return Error::unsupported(fmt::format("--format {}: {}; choose one of {}", name, what, format_names(gguf)));
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

std::function<void(int64_t, int64_t)> fraction_of(const ConvertOptions& options) {
  if (!options.progress) return {};
  return [&options](int64_t done, int64_t all) {
    options.progress(static_cast<double>(done) / static_cast<double>(std::max<int64_t>(1, all)));
  };
}

}  // namespace

Result<ConvertReport> convert_model(const ConvertOptions& options, ThreadPool& pool) {
  const bool gguf = options.output.ends_with(".gguf");
  if (options.output.empty()) return Error::user("output: is missing; give a .gguf file or a folder");
  for (const char* ending : {".safetensors", ".bin", ".json"})
    if (options.output.ends_with(ending))
      return Error::user(
          fmt::format("{}: is neither a .gguf file nor a folder to write a Hugging Face model into", options.output));
  MILLRACE_TRY(const Format* target, find_target(options.format, gguf));
  MILLRACE_TRY(ConversionInput input, open_conversion_input(options.input, options.tokenizer, options.open));
  for (const LayerSpec& layer : input.spec.layers)
    if (layer.mixer != &kAttentionMixer)
      return Error::unsupported(
          fmt::format("{}: conversion of layers with the mixer '{}'", options.input, layer.mixer->name));
  MILLRACE_TRY_VOID(check_output(options.output, options.force, input.paths()));

  ConvertReport report;
  report.input_kind = input.kind_name();
  report.output_kind = gguf ? "gguf" : "huggingface";
  MILLRACE_TRY(ConversionPlan plan, plan_conversion(input, gguf, target, report));
  if (gguf) {
    for (OutputTensor& tensor : plan.tensors)
      plan.writer.add_tensor(tensor.name, tensor.format, tensor.dims,
                             [&tensor, &pool](uint8_t* to, int64_t) { return tensor.produce(to, pool); });
    MILLRACE_TRY_VOID(plan.writer.write(options.output, fraction_of(options)));
  } else {
    MILLRACE_TRY_VOID(write_folder(options.output, plan.texts, plan.copies, plan.tensors, pool, fraction_of(options)));
  }
  count(report, plan.tensors);
  return report;
}

}  // namespace millrace
