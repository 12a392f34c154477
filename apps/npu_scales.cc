// millrace npu-scales: calibrates the kernel switch npu with a text.
#include <fmt/format.h>

#include "base/ordered_json.h"
#include "command.h"
#include "evaluate/npu_calibration.h"
#include "input.h"
#include "model_flags.h"

namespace millrace {
namespace {

constexpr const char* kNpuScalesExamples = R"(Examples:
  millrace npu-scales -m model.gguf -f texts.txt -o scales.json
  millrace serve -m model.gguf --use kernel=npu:scales=scales.json
The text should be like the texts that the model will read; 8192 tokens are enough.)";

struct NpuScalesFlags {
  ModelFlags model;
  std::string file, out;
  int64_t context = 512, tokens = 8192;
  bool json = false;
};

Result<int> run_npu_scales(const NpuScalesFlags& flags) {
  MILLRACE_TRY(const auto loaded, flags.model.load_with_text(flags.file, flags.context, flags.tokens));
  const auto& [model, tokens] = loaded;
  MILLRACE_TRY(const NpuScales scales, calibrate_npu(*model, tokens, flags.context, flags.model.threads));
  MILLRACE_TRY_VOID(write_npu_scales(flags.out, scales, model->info().name));
  if (flags.json) {
    print_json_line({{"file", flags.out}, {"inputs", scales.maxima.size()}, {"tokens", tokens.size()}});
    return 0;
  }
  fmt::print("inputs of the matrices: {}\n", scales.maxima.size());
  fmt::print("use them:   --use kernel=npu:scales={}\n", flags.out);
  return 0;
}

}  // namespace

void add_npu_scales_command(CLI::App& app) {
  auto flags = std::make_shared<NpuScalesFlags>();
  CLI::App* command = add_command(app, "npu-scales", "Calibrate int8 prompts (--use kernel=npu) with a text",
                                  kNpuScalesExamples, [=] { return run_npu_scales(*flags); });
  flags->model.add_with_text_to(command, &flags->file);
  command->add_option("-o,--output", flags->out, "File to write")->required();
  command->add_option("-c,--context", flags->context, "Tokens of a window of the text")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 20));
  command->add_option("--tokens", flags->tokens, "Tokens of the text to use, at most")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 30));
  command->add_flag("--json", flags->json, "Print one JSON object");
}

}  // namespace millrace
