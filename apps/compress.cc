// millrace compress: quantizes or prunes a model with what a calibration text shows of its inputs.
#include "compress/compress.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>

#include "base/ordered_json.h"
#include "command.h"
#include "input.h"
#include "progress.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kCompressExamples = R"(Examples:
  millrace compress model.gguf small.gguf --pass gptq:format=q4_0 --calibrate text.txt --report report.json
  millrace compress ./Qwen3-0.6B/ small.gguf --pass gptq:format=q4_k --calibrate text.txt --memory 8G
  millrace compress model.gguf sparse.gguf --pass wanda:sparsity=0.5 --calibrate text.txt
  millrace compress model.gguf small.gguf --pass wanda:pattern=2:4 --pass gptq:format=q4_0 --calibrate text.txt

The passes run in the order given; `millrace techniques --family pass` lists them with their options. The output is an
ordinary GGUF file of the chosen number format, and runs as fast as one from `millrace convert`: zeros of a pruner save
no time. Use text like that which the model is to read; 50 thousand tokens and more. Matrices that read no calibrated
input, such as embedding tables, are rounded as `millrace convert` does.)";

struct CompressFlags {
  CompressOptions options;
  std::string memory, report;
  bool json = false;
};

Json to_json(const CompressedMatrix& matrix) {
  Json out = {{"name", matrix.name},
              {"rows", matrix.rows},
              {"cols", matrix.cols},
              {"format", matrix.format},
              {"zeros", matrix.zeros},
              {"calibration_rows", matrix.calibration_rows},
              {"weighted_error", matrix.weighted_error}};
  if (matrix.output_error >= 0) {
    out["output_error"] = matrix.output_error;
    out["rounded_output_error"] = matrix.rounded_output_error;
  }
  out["passes"] = Json::array();
  for (const auto& [text, row] : matrix.passes) {
    Json one = {{"pass", text}, {"action", row.action}};
    if (!row.why.empty()) one["why"] = row.why;
    for (const auto& [name, value] : row.figures) one[name] = value;
    out["passes"].push_back(std::move(one));
  }
  return out;
}

Json to_json(const CompressReport& report) {
  Json out = {{"input", report.input},
              {"output", report.output},
              {"architecture", report.architecture},
              {"passes", report.passes},
              {"calibration", nullptr},
              {"input_bytes", report.input_bytes},
              {"output_bytes", report.output_bytes}};
  if (!report.calibration_name.empty())
    out["calibration"] = {{"text", report.calibration_name},       {"xxh3_128", report.calibration_hash},
                          {"tokens", report.calibration_tokens},   {"windows", report.calibration_windows},
                          {"context", report.calibration_context}, {"ranges", report.ranges}};
  out["matrices"] = Json::array();
  for (const CompressedMatrix& matrix : report.matrices) out["matrices"].push_back(to_json(matrix));
  out["notes"] = report.notes;
  out["memory"] = Json::object();
  for (const MemoryAccount& account : report.memory) out["memory"][account.name] = account.peak;
  return out;
}

void print_text(const CompressReport& report) {
  fmt::print("{}: {} from {}, {:.1f} MB of tensors, before {:.1f} MB\n", report.output, report.architecture,
             report.input, static_cast<double>(report.output_bytes) * 1e-6,
             static_cast<double>(report.input_bytes) * 1e-6);
  if (!report.calibration_name.empty())
    fmt::print("calibrated with {}: {} tokens in windows of {}, {} run{} over the text\n", report.calibration_name,
               report.calibration_tokens, report.calibration_context, report.ranges, report.ranges == 1 ? "" : "s");
  fmt::print("{:<32} {:>13} {:>7} {:>7} {:>11} {:>11}\n", "matrix", "size", "format", "zeros", "error", "rounding");
  for (const CompressedMatrix& matrix : report.matrices) {
    const bool exact = matrix.output_error >= 0;
    fmt::print("{:<32} {:>13} {:>7} {:>6.1f}% {:>11.3e} {:>11}{}\n", matrix.name,
               fmt::format("{} x {}", matrix.rows, matrix.cols), matrix.format, 100 * matrix.zeros,
               exact ? matrix.output_error : matrix.weighted_error,
               exact ? fmt::format("{:.3e}", matrix.rounded_output_error) : "", [&] {
                 std::string left;
                 for (const auto& [text, row] : matrix.passes)
                   if (row.action == "left") left += fmt::format("  {} left it: {}", text, row.why);
                 return left;
               }());
  }
  for (const std::string& note : report.notes) fmt::print("note: {}\n", note);
}

Result<void> write_report(const std::string& path, const Json& report) {
  std::ofstream file(path, std::ios::binary);
  file << report.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  if (!file.flush()) return Error::resource(fmt::format("{}: the report cannot be written", path));
  return {};
}

Result<int> run(const CompressFlags& flags) {
  CompressOptions options = flags.options;
  if (!flags.memory.empty()) {
    auto bytes = parse_bytes(flags.memory);
    if (!bytes.ok()) return Error{bytes.error().kind, "--memory: " + bytes.error().message};
    if (*bytes == 0) return Error::user("--memory: must be more than 0");
    options.memory = *bytes;
  }
  if (!options.calibration.name.empty()) {
    MILLRACE_TRY(options.calibration.text, read_text_file(options.calibration.name));
  }
  CompressReport report;
  {
    ProgressBar bar("compressing");
    options.progress = [&](double fraction, const std::string& what) { bar.update(fraction, what); };
    MILLRACE_TRY(report, compress_model(options));
  }
  const Json json = to_json(report);
  if (!flags.report.empty()) MILLRACE_TRY_VOID(write_report(flags.report, json));
  if (flags.json)
    print_json_line(json);
  else
    print_text(report);
  return 0;
}

}  // namespace

void add_compress_command(CLI::App& app) {
  auto flags = std::make_shared<CompressFlags>();
  CLI::App* command = add_command(app, "compress", "Quantize or prune a model with a calibration text",
                                  kCompressExamples, [=] { return run(*flags); });
  command->add_option("IN", flags->options.input, "GGUF file, Hugging Face folder or built-in model")->required();
  command->add_option("OUT", flags->options.output, "Output: a .gguf file")->required();
  command
      ->add_option("--pass", flags->options.passes,
                   "Compression pass NAME[:key=value,...]; repeatable, run in this order. See millrace techniques "
                   "--family pass")
      ->required()
      ->allow_extra_args(false);
  command->add_option("--calibrate", flags->options.calibration.name,
                      "File with the text that shows the inputs of the matrices; -: standard input");
  command->add_option("--report", flags->report, "Write a JSON report with one row per matrix to this file");
  command
      ->add_option("-c,--context,--ctx-size", flags->options.calibration.context,
                   "Tokens per window of the text [512, or the model's context if that is less]")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 24));
  command->add_option("--chunks", flags->options.calibration.windows, "Most windows of the text to use")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command->add_option("--memory", flags->memory,
                      "Memory limit for everything, such as 8G or 512MiB: fewer layers are then measured at a time");
  command->add_flag("--force", flags->options.force, "Replace an existing output");
  command->add_option("-t,--threads", flags->options.threads, "Threads; 0: every core")->check(CLI::Range(0, 1024));
  command->add_flag("--json", flags->json, "Print the report as one JSON object");
}

}  // namespace millrace
