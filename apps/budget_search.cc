// millrace budget-search: how the token evictor scissorhands should divide a budget among layers, or KV heads.
#include "evaluate/budget_search.h"

#include <fmt/format.h>

#include "base/ordered_json.h"
#include "command.h"
#include "input.h"
#include "model_flags.h"

namespace millrace {
namespace {

constexpr const char* kBudgetExamples = R"(Examples:
  millrace budget-search -m model.gguf -f texts.txt -c 2048 --keep 0.2
  millrace budget-search -m model.gguf -f texts.txt -c 2048 --keep 0.2 --heads
The text should be like the texts that the model will read, and --keep about the share of them that will be kept. The
output ends with the --evictor that uses the budgets, for which any budget may be set.)";

struct BudgetFlags {
  ModelFlags model;
  std::string file;
  BudgetSearchOptions search;
  int64_t tokens = 16384;
  bool json = false;
};

Result<int> run_budget_search(BudgetFlags flags) {
  MILLRACE_TRY(const auto loaded, flags.model.load_with_text(flags.file, flags.search.context, flags.tokens));
  const auto& [model, tokens] = loaded;
  flags.search.threads = flags.model.threads;
  MILLRACE_TRY(const FoundBudgets found, search_budgets(model, tokens, flags.search));
  const std::string use = fmt::format("scissorhands:budget=1024,recent={},history={},{}={}", flags.search.recent,
                                      flags.search.history, flags.search.heads ? "heads" : "layers", found.text());
  const int64_t heads = flags.search.heads ? std::ssize(found.layers) / model->parts().model->spec().layer_count() : 0;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  if (!flags.json)
    fmt::print("layer   {}persistence   kept of equal budgets   budget   kept\n", heads > 0 ? "head   " : "");
  for (size_t i = 0; i < found.layers.size(); ++i) {
    const LayerPersistence& layer = found.layers[i];
    const double equal = layer.kept_share(found.average), own = layer.kept_share(found.older[i]);
    const int64_t budget = found.older[i] + flags.search.recent;
    const auto index = static_cast<int64_t>(i);
    const std::string place =
        heads > 0 ? fmt::format("{:5} {:6}", index / heads, index % heads) : fmt::format("{:5}", index);
    if (!flags.json) fmt::print("{} {:13.3f} {:23.3f} {:8} {:6.3f}\n", place, layer.ratio(), equal, budget, own);
    rows.push_back({{"persistence", layer.ratio()}, {"equal_kept", equal}, {"budget", budget}, {"kept", own}});
  }
  if (flags.json)
    print_json_line({{"tokens", tokens.size()}, {heads > 0 ? "heads" : "layers", rows}, {"use", use}});
  else
    fmt::print("use them:   --evictor {}\n", use);
  return 0;
}

}  // namespace

void add_budget_search_command(CLI::App& app) {
  auto flags = std::make_shared<BudgetFlags>();
  CLI::App* command =
      add_command(app, "budget-search", "Find how many tokens of the KV cache each layer, or KV head, should keep",
                  kBudgetExamples, [=] { return run_budget_search(*flags); });
  flags->model.add_with_text_to(command, &flags->file);
  command->add_option("-c,--context", flags->search.context, "Tokens of a window of the text")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 20));
  command->add_option("--keep", flags->search.keep, "Share of half a window that is kept, on average over layers")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--recent", flags->search.recent, "As of scissorhands")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20));
  command->add_option("--history", flags->search.history, "As of scissorhands")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command->add_option("--tokens", flags->tokens, "Tokens of the text to use, at most")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{128}, int64_t{1} << 20));
  command->add_flag("--heads", flags->search.heads, "Budgets of every KV head of each layer");
  command->add_flag("--json", flags->json, "Print one JSON object");
}

}  // namespace millrace
