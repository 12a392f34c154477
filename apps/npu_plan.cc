// millrace npu-plan: what each technique of llm.npu gains on a phone's NPU, by a cost model.
#include <fmt/format.h>

#include "base/ordered_json.h"
#include "command.h"
#include "input.h"
#include "models/npu/cost_model.h"

namespace millrace {
namespace {

constexpr const char* kNpuPlanExamples = R"(Examples:
  millrace npu-plan
  millrace npu-plan --model gemma-2b --prompt 512 --chunk 128
  millrace npu-plan --prompt 1024 --json
Seconds are virtual: nothing is computed, and this machine has no such NPU.)";

struct NpuPlanFlags {
  std::string model;
  int64_t prompt = 1024, chunk = 256;
  bool json = false;
};

void print_plan(const NpuTransformer& model, const NpuPlanFlags& flags) {
  fmt::print("{}, a prompt of {} tokens in chunks of {}\n", model.name, flags.prompt, flags.chunk);
  fmt::print("{:<24}{:>10}{:>10}{:>10}{:>12}{:>10}\n", "", "seconds", "prepare", "tok/s", "NPU idle %", "gain");
  double before = 0;
  for (const NpuPrefill& step : npu_ablation(model, flags.prompt, flags.chunk, NpuModel())) {
    const bool npu = step.timeline.npu_seconds > 0;
    fmt::print("{:<24}{:>10.3f}{:>10.2f}{:>10.0f}{:>12}{:>10}\n", step.name, step.seconds(), step.prepare_seconds,
               static_cast<double>(flags.prompt) / step.seconds(),
               npu ? fmt::format("{:.0f}", 100 * step.timeline.npu_idle()) : "-",
               before > 0 ? fmt::format("{:.2f}", before / step.seconds()) : "-");
    before = step.seconds();
  }
}

void print_plan_json(const NpuTransformer& model, const NpuPlanFlags& flags) {
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  for (const NpuPrefill& step : npu_ablation(model, flags.prompt, flags.chunk, NpuModel()))
    steps.push_back({{"name", step.name},
                     {"seconds", step.seconds()},
                     {"prepare_seconds", step.prepare_seconds},
                     {"tokens_per_second", static_cast<double>(flags.prompt) / step.seconds()},
                     {"npu_idle", step.timeline.npu_idle()}});
  print_json_line({{"model", model.name}, {"prompt", flags.prompt}, {"chunk", flags.chunk}, {"steps", steps}});
}

Result<int> run_npu_plan(const NpuPlanFlags& flags) {
  bool first = true;
  for (const NpuTransformer& model : npu_transformers()) {
    if (!flags.model.empty() && model.name != flags.model) continue;
    if (flags.json) {
      print_plan_json(model, flags);
      continue;
    }
    if (!std::exchange(first, false)) fmt::print("\n");
    print_plan(model, flags);
  }
  return 0;
}

}  // namespace

void add_npu_plan_command(CLI::App& app) {
  auto flags = std::make_shared<NpuPlanFlags>();
  CLI::App* command = add_command(app, "npu-plan", "Show what a phone's NPU would gain for prompts, by a cost model",
                                  kNpuPlanExamples, [=] { return run_npu_plan(*flags); });
  std::vector<std::string> names;
  for (const NpuTransformer& model : npu_transformers()) names.push_back(model.name);
  command->add_option("--model", flags->model, "Shape of the model; default: all")->check(CLI::IsMember(names));
  command->add_option("-p,--prompt", flags->prompt, "Tokens of the prompt")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command->add_option("--chunk", flags->chunk, "Tokens of a chunk")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{16}, int64_t{4096}));
  command->add_flag("--json", flags->json, "Print a JSON object for each model");
}

}  // namespace millrace
