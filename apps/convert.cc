// millrace convert: converts models between file formats and number formats.
#include "models/convert/convert.h"

#include <fmt/format.h>

#include <map>

#include "base/cpu.h"
#include "base/ordered_json.h"
#include "command.h"
#include "evaluate/pooling.h"
#include "hub_model.h"
#include "progress.h"
#include "run/language_model.h"

namespace millrace {
namespace {

constexpr const char* kConvertExamples = R"(Examples:
  millrace convert ./Qwen3-0.6B/ qwen3.gguf                  a Hugging Face folder, keeping number formats
  millrace convert ./Qwen3-0.6B/ qwen3-q8.gguf --format q8_0 the same with matrices quantized to 8 bits
  millrace convert qwen3.gguf ./qwen3-folder                 back: config.json, model.safetensors, tokenizer
  millrace convert big.gguf small.gguf --format q4_k         quantize a GGUF file
  millrace convert big.gguf small.gguf --format Q4_K_M       the same with more bits where rounding hurts most
  millrace convert big.gguf small.gguf --format q4_k --imatrix big.imatrix
  millrace convert stories260K.bin stories.gguf              a llama2.c checkpoint and the tok512.bin next to it

If OUT ends in .gguf it is a GGUF file, otherwise a Hugging Face folder. --format applies to all matrices including the
embedding and the output head; norms, biases, routers and learned positions are not changed. A matrix whose rows are not
a multiple of 256 falls back to a format with blocks of 32: q4_k to q5_0, q5_k to q5_1, q6_k to q8_0, tq1_0 and tq2_0 to
q4_0, and q2_k, q3_k, the e8p and the other iq formats to iq4_nl; those with blocks of 64 and 128, nvfp4 to mxfp4, q2_0,
q2_g64 and q3_g64 to q4_0, q2_g128 to q2_g64, q3_g128 to q3_g64 and q1_0 to q2_0; if its rows are not a multiple of 32
either, to f16. The report lists each fallback. If no matrix can be quantized, the conversion fails.)";

struct ConvertFlags {
  ConvertOptions options;
  int threads = 0;
  bool json = false;
};

void print_json(const ConvertReport& report, const std::string& output) {
  nlohmann::ordered_json out;
  out["output"] = output;
  out["input_kind"] = report.input_kind;
  out["output_kind"] = report.output_kind;
  out["architecture"] = report.architecture;
  out["tensors"] = report.tensors;
  out["parameters"] = report.parameters;
  out["bytes"] = report.bytes;
  out["formats"] = nlohmann::ordered_json::object();
  for (const auto& [name, size] : report.formats)
    out["formats"][name] = {{"tensors", size.first}, {"bytes", size.second}};
  out["kept"] = nlohmann::ordered_json::array();
  for (const auto& kept : report.kept)
    out["kept"].push_back({{"name", kept.name}, {"format", kept.format}, {"why", kept.why}});
  out["fallbacks"] = nlohmann::ordered_json::array();
  for (const auto& one : report.fallbacks)
    out["fallbacks"].push_back({{"name", one.name}, {"format", one.format}, {"why", one.why}});
  out["left_out"] = report.left_out;
  out["notes"] = report.notes;
  std::puts(out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

void print_text(const ConvertReport& report, const std::string& output, const std::string& format) {
  fmt::print("{}: {} from {}, {} tensors, {:.1f} M parameters, {:.1f} MB\n", output, report.architecture,
             report.input_kind, report.tensors, static_cast<double>(report.parameters) * 1e-6,
             static_cast<double>(report.bytes) * 1e-6);
  for (const auto& [name, size] : report.formats)
    fmt::print("  {:8} {:5} tensors {:10.1f} MB\n", name, size.first, static_cast<double>(size.second) * 1e-6);
  std::map<std::pair<std::string, std::string>, int64_t> kept;
  for (const auto& one : report.kept) ++kept[{one.why, one.format}];
  std::string unchanged;
  for (const auto& [why, number] : kept)
    unchanged += fmt::format("{}{} as {} ({})", unchanged.empty() ? "" : ", ", number, why.second, why.first);
  if (!unchanged.empty()) fmt::print("  --format does not apply to {}\n", unchanged);
  for (const auto& one : report.fallbacks) fmt::print("  falls back to {}: {} ({})\n", one.format, one.name, one.why);
  if (!report.fallbacks.empty())
    fmt::print("  {} fell back from {}\n",
               report.fallbacks.size() == 1 ? "1 matrix" : fmt::format("{} matrices", report.fallbacks.size()), format);
  for (const auto& name : report.left_out) fmt::print("  left out: {}\n", name);
  for (const auto& note : report.notes) fmt::print("  note: {}\n", note);
}

Result<int> run(const ConvertFlags& flags) {
  ThreadPool pool(flags.threads > 0 ? flags.threads : available_cores());
  ConvertReport report;
  {
    ProgressBar bar("converting");
    ConvertOptions options = flags.options;
    options.open = open_local_model;
    options.pooling_type = gguf_pooling_type;
    options.progress = [&](double fraction) { bar.update(fraction); };
    MILLRACE_TRY(report, convert_model(options, pool));
  }
  flags.json ? print_json(report, flags.options.output)
             : print_text(report, flags.options.output, flags.options.format);
  return 0;
}

}  // namespace

void add_convert_command(CLI::App& app) {
  auto flags = std::make_shared<ConvertFlags>();
  CLI::App* command =
      add_command(app, "convert", "Convert a model between GGUF, Hugging Face folders and number formats",
                  kConvertExamples, [=] { return run(*flags); });
  command
      ->add_option("IN", flags->options.input,
                   "GGUF file, .safetensors file, Hugging Face folder, built-in model or llama2.c checkpoint (.bin)")
      ->required();
  command->add_option("OUT", flags->options.output, "Output: a .gguf file, or a folder")->required();
  command->add_option(
      "--format", flags->options.format,
      "Format of the matrices: f32, f16, bf16, q8_0, q4_k ..., or a mix by its usual name, such as Q4_K_M or "
      "Q5_K_S; default: unchanged");
  command->add_option("--imatrix", flags->options.importance,
                      "Importance matrix, from millrace compress --observe or llama.cpp: errors of weights with large "
                      "inputs count more in rounding");
  command->add_option("--task", flags->options.task,
                      "For folders with an adapter for each task, such as jina-embeddings-v3: add the adapters of this "
                      "task to the matrices; default: leave them out");
  command->add_option("--tokenizer", flags->options.tokenizer,
                      "For llama2.c: tokenizer.bin, tokenizer.model or none; default: the one next to IN");
  command->add_flag("--force", flags->options.force, "Replace an existing output");
  command->add_option("-t,--threads", flags->threads, "Threads; 0: every core")->check(CLI::Range(0, 1024));
  command->add_flag("--json", flags->json, "Print the report as one JSON object");
}

}  // namespace millrace
