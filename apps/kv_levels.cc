// millrace kv-levels: levels of the KV codec kvquant, fitted to a text.
#include <fmt/format.h>

#include "base/ordered_json.h"
#include "command.h"
#include "evaluate/kvquant_fit.h"
#include "input.h"
#include "model_flags.h"

namespace millrace {
namespace {

constexpr const char* kLevelExamples = R"(Examples:
  millrace kv-levels -m model.gguf -f texts.txt --bits 3 -o levels.json
  millrace serve -m model.gguf --kv-format kvquant:levels=levels.json
The text should be like the texts that the model will read; 8192 tokens are enough.)";

struct LevelFlags {
  ModelFlags model;
  std::string file, out;
  KvQuantFitOptions fit;
  int64_t tokens = 8192;
  bool json = false;
};

// By how much the fitted levels lower the squared error, over all layers.
double gain(const std::vector<KvQuantFitError>& errors) {
  double fitted = 0, normal = 0;
  for (const KvQuantFitError& error : errors) {
    fitted += error.fitted;
    normal += error.normal;
  }
  return normal > 0 ? 1 - fitted / normal : 0;
}

Result<int> run_levels(LevelFlags flags) {
  MILLRACE_TRY(const auto loaded, flags.model.load_with_text(flags.file, flags.fit.context, flags.tokens));
  const auto& [model, tokens] = loaded;
  flags.fit.threads = flags.model.threads;
  MILLRACE_TRY(const KvQuantFit fit, fit_kvquant_levels(model, tokens, flags.fit));
  MILLRACE_TRY_VOID(write_kvquant_levels(flags.out, fit.levels, model->info().name));
  const double keys = gain(fit.keys), values = gain(fit.values);
  if (flags.json) {
    print_json_line({{"file", flags.out},
                     {"bits", fit.levels.bits},
                     {"layers", fit.levels.layers.size()},
                     {"tokens", tokens.size()},
                     {"keys_error_saved", keys},
                     {"values_error_saved", values}});
    return 0;
  }
  fmt::print("squared error compared with the levels for normal values: keys -{:.1f} %, values -{:.1f} %\n", 100 * keys,
             100 * values);
  fmt::print("use them:   --kv-format kvquant:levels={}\n", flags.out);
  return 0;
}

}  // namespace

void add_kv_levels_command(CLI::App& app) {
  auto flags = std::make_shared<LevelFlags>();
  CLI::App* command = add_command(app, "kv-levels", "Fit the levels of the KV cache format kvquant to a text",
                                  kLevelExamples, [=] { return run_levels(*flags); });
  flags->model.add_with_text_to(command, &flags->file);
  command->add_option("-o,--output", flags->out, "File to write")->required();
  command->add_option("--bits", flags->fit.shape.bits, "Bits of a level")
      ->capture_default_str()
      ->check(CLI::Range(2, 4));
  command->add_option("--group", flags->fit.shape.group, "As of kvquant")
      ->capture_default_str()
      ->check(CLI::IsMember({32, 64, 128}));
  command->add_option("--outliers", flags->fit.shape.outliers, "As of kvquant")
      ->capture_default_str()
      ->check(CLI::Range(0, 4));
  command->add_option("-c,--context", flags->fit.context, "Tokens of a window of the text")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 20));
  command->add_option("--tokens", flags->tokens, "Tokens of the text to use, at most")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{128}, int64_t{1} << 20));
  command->add_flag("--json", flags->json, "Print one JSON object");
}

}  // namespace millrace
