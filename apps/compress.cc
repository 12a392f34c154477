// millrace compress: quantizes or prunes a model with what a calibration text shows of its inputs.
#include "compress/compress.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>

#include "base/ordered_json.h"
#include "command.h"
#include "compress/calibration/observe.h"
#include "compress_report.h"
#include "input.h"
#include "progress.h"
#include "table_room.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kCompressExamples = R"(Examples:
  millrace compress model.gguf small.gguf --pass gptq:format=q4_0 --calibrate text.txt --report report.json
  millrace compress ./Qwen3-0.6B/ small.gguf --pass gptq:format=q4_k --calibrate text.txt --memory 8G
  millrace compress model.gguf sparse.gguf --pass wanda:sparsity=0.5 --calibrate text.txt
  millrace compress model.gguf small.gguf --pass wanda:pattern=2:4 --pass gptq:format=q4_0 --calibrate text.txt
  millrace compress model.gguf thin.gguf --pass svd_llm:ratio=0.5 --calibrate text.txt
  millrace compress model.gguf small.gguf --pass gptq:format=q4_k --calibrate text.txt --keep 'output*=q8_0' --resume
  millrace compress model.gguf small.gguf --target-bits 3.25 --calibrate text.txt --held-out 0.25
  millrace compress model.gguf small.gguf --pass svd:ratio=0.5 --dry-run
  millrace compress model.gguf --observe model.imatrix --calibrate text.txt

The passes run in the order given; `millrace techniques --family pass` lists them with their options. The output is an
ordinary GGUF file of the chosen number format, and runs as fast as one from `millrace convert`: zeros of a pruner save
no time. Use text like that which the model is to read; 50 thousand tokens and more. Matrices that read no calibrated
input, such as embedding tables, are rounded as `millrace convert` does. An embedding table that is also the head stays
at 8 bits unless --table says otherwise. A pass that changes no matrix is named, and the command ends with 1.)";

struct CompressFlags {
  CompressOptions options;
  std::string memory, report, evaluate;
  bool json = false, wide = false;
};

Result<void> write_report(const std::string& path, const Json& json, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  if (path.ends_with(".txt"))
    file << text;
  else
    file << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  if (!file.flush()) return Error::resource(fmt::format("{}: the report cannot be written", path));
  return {};
}

// The output beside the input, on another text.
Result<CompressEvaluation> evaluate(const CompressFlags& flags, const CompressOptions& options, std::string written) {
  ProgressBar bar("evaluating");
  DivergenceText text{.name = flags.evaluate,
                      .text = std::move(written),
                      .context = options.calibration.context,
                      .windows = options.calibration.windows,
                      .threads = options.threads,
                      .progress = [&](double done) { bar.update(0.8 * done); }};
  const LoadOptions load{
      .threads = options.threads, .context = options.calibration.context, .memory = options.memory / 2};
  MILLRACE_TRY(const auto before, LanguageModel::load(options.input, load));
  MILLRACE_TRY(const auto after, LanguageModel::load(options.output, load));
  MILLRACE_TRY(const ModelDivergence found, compare_models(before, after, text));
  MILLRACE_TRY(SpeedComparison speed,
               compare_speed(*before, *after, options.threads, [&](double done) { bar.update(0.8 + 0.2 * done); }));
  return CompressEvaluation{flags.evaluate, found, std::move(speed)};
}

// Says what was written on standard error, unless it is all that there is to say.
Result<void> observe(CompressOptions options, bool json) {
  ObserveReport done;
  {
    ProgressBar bar("observing");
    options.progress = [&](double fraction, const std::string& what) { bar.update(fraction, what); };
    MILLRACE_TRY(done, observe_model(options));
  }
  if (json) {
    print_json_line({{"observe", options.observe},
                     {"matrices", done.matrices},
                     {"tokens", done.tokens},
                     {"windows", done.windows},
                     {"context", done.context}});
    return {};
  }
  fmt::print(options.output.empty() ? stdout : stderr, "{}: inputs of {} matrices, {} tokens in windows of {}\n",
             options.observe, done.matrices, done.tokens, done.context);
  return {};
}

Result<int> run(const CompressFlags& flags) {
  CompressOptions options = flags.options;
  MILLRACE_TRY_VOID(check_writable("--report", flags.report));
  if (!flags.memory.empty()) {
    auto bytes = parse_bytes(flags.memory);
    if (!bytes.ok()) return Error{bytes.error().kind, "--memory: " + bytes.error().message};
    if (*bytes == 0) return Error::user("--memory: must be more than 0");
    options.memory = *bytes;
  }
  if (!options.calibration.name.empty()) {
    MILLRACE_TRY(options.calibration.text, read_text_file(options.calibration.name));
    if (const std::string warning = text_warning(options.calibration.name, options.calibration.text); !warning.empty())
      fmt::print(stderr, "millrace: warning: {}\n", warning);
  }
  if (!options.observe.empty()) MILLRACE_TRY_VOID(observe(options, flags.json && options.output.empty()));
  if (!flags.evaluate.empty() && options.dry_run)
    return Error::user("--evaluate: a dry run has no output that could be evaluated");
  std::string other_text;  // read before the work, which may take hours
  if (!flags.evaluate.empty()) {
    MILLRACE_TRY(other_text, read_text_file(flags.evaluate));
  }
  if (options.output.empty() && !options.dry_run) {
    if (!options.observe.empty() && options.passes.empty()) return 0;
    return Error::user("OUT: is missing; name a .gguf file, or give --observe without --pass");
  }
  CompressReport report;
  {
    ProgressBar bar("compressing");
    options.progress = [&](double fraction, const std::string& what) { bar.update(fraction, what); };
    MILLRACE_TRY(report, compress_model(options));
  }
  std::optional<CompressEvaluation> evaluation;
  if (!flags.evaluate.empty()) {
    MILLRACE_TRY(evaluation, evaluate(flags, options, std::move(other_text)));
  }
  const Json json = compress_json(report, evaluation);
  if (!flags.report.empty()) MILLRACE_TRY_VOID(write_report(flags.report, json, compress_text(report, evaluation, {})));
  if (flags.json)
    print_json_line(json);
  else
    fmt::print("{}", compress_text(report, evaluation, table_room(flags.wide, "--json")));
  for (const std::string& pass : report.idle) fmt::print(stderr, "millrace: {}\n", pass);
  return report.idle.empty() ? 0 : 1;
}

}  // namespace

void add_compress_command(CLI::App& app) {
  auto flags = std::make_shared<CompressFlags>();
  CLI::App* command = add_command(app, "compress", "Quantize or prune a model with a calibration text",
                                  kCompressExamples, [=] { return run(*flags); });
  command->add_option("IN", flags->options.input, "GGUF file, Hugging Face folder or built-in model")->required();
  command->add_option("OUT", flags->options.output, "Output: a .gguf file");
  command
      ->add_option("--pass", flags->options.passes,
                   "Compression pass NAME[:key=value,...]; repeatable, run in this order. See millrace techniques "
                   "--family pass")
      ->allow_extra_args(false);
  command->add_option("--calibrate", flags->options.calibration.name,
                      "File with the text that shows the inputs of the matrices; -: standard input");
  command->add_option("--observe", flags->options.observe,
                      "Write an importance matrix of the calibration text to this file: llama.cpp's older kind if the "
                      "name ends in .dat, else its GGUF kind");
  command
      ->add_option("--keep", flags->options.keep,
                   "Number format of some tensors, which overrides the passes: PATTERN=FORMAT, such as 'output*=q8_0'; "
                   "repeatable, the first that matches counts")
      ->allow_extra_args(false);
  command
      ->add_option("--table", flags->options.table,
                   "Format of an embedding table that is also the head, if the passes have fewer bits: q8_0, q6_k ...; "
                   "same: the passes' format")
      ->capture_default_str();
  command
      ->add_option(
          "--target-bits", flags->options.target_bits,
          "Give each matrix a format of its own, so that all take at most these bits a weight: the pass llm_mq")
      ->check(CLI::Range(1.0, 16.0));
  command
      ->add_option("--held-out", flags->options.calibration.held_out,
                   "Part of the calibration text that no pass sees, for the errors of the report [0]")
      ->check(CLI::Range(0.0, 0.9));
  command->add_flag("--dry-run", flags->options.dry_run,
                    "Write nothing; print what each pass would do to each matrix, and the sizes");
  command->add_flag("--resume", flags->options.resume,
                    "Store each finished decoder block in OUT.partial/, and continue with those of a stopped run");
  command->add_option(
      "--evaluate", flags->evaluate,
      "Text on which the output is compared with IN: perplexity, KL divergence, same top token; and the "
      "speed of both on this machine");
  command->add_option("--report", flags->report,
                      "Write a report with one row per matrix to this file: JSON, or text if the name ends in .txt");
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
  add_wide_to(command, &flags->wide, compress_drop_order());
}

}  // namespace millrace
