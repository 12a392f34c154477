// millrace window-search: how far back each head of a model should see, for the attention pattern `semsa`.
#include "evaluate/window_search.h"

#include <fmt/format.h>

#include "base/ordered_json.h"
#include "command.h"
#include "input.h"
#include "model_flags.h"

namespace millrace {
namespace {

constexpr const char* kWindowSearchExamples = R"(Examples:
  millrace window-search -m model.gguf -f texts.txt -c 4096 --keys 0.25
The text should be like the texts that the model will read. The output ends with the --use that chooses the windows.)";

struct WindowSearchFlags {
  ModelFlags model;
  std::string file;
  WindowSearchOptions search;
  int64_t tokens = 16384;
  bool json = false;
};

Result<int> run_window_search(WindowSearchFlags flags) {
  MILLRACE_TRY(const auto loaded, flags.model.load_with_text(flags.file, flags.search.context, flags.tokens));
  const auto& [model, tokens] = loaded;
  flags.search.threads = flags.model.threads;
  MILLRACE_TRY(const auto gains, measure_windows(model, tokens, flags.search));
  const ChosenWindows own = choose_windows(gains, flags.search.keys), same = same_window(gains, flags.search.keys);
  const std::string use =
      fmt::format("attention=semsa:block={},sinks={},windows={}", flags.search.block, flags.search.sinks, own.text());
  if (flags.json) {
    print_json_line({{"windows", own.text()},
                     {"mass", own.mass},
                     {"keys", own.keys},
                     {"same_window", same.windows.front().text()},
                     {"same_mass", same.mass},
                     {"same_keys", same.keys},
                     {"use", use}});
    return 0;
  }
  fmt::print("own windows: heads see {:.1f} % of the keys, with {:.1f} % of the attention\n", 100 * own.keys,
             100 * own.mass);
  fmt::print("the same for all ({}): {:.1f} % of the keys, with {:.1f} %\n", same.windows.front().text(),
             100 * same.keys, 100 * same.mass);
  fmt::print("use them:   --use {}\n", use);
  return 0;
}

}  // namespace

void add_window_search_command(CLI::App& app) {
  auto flags = std::make_shared<WindowSearchFlags>();
  CLI::App* command = add_command(app, "window-search", "Find how far back each head of a model should see",
                                  kWindowSearchExamples, [=] { return run_window_search(*flags); });
  flags->model.add_with_text_to(command, &flags->file);
  command->add_option("-c,--context", flags->search.context, "Tokens of a window of the text")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 20));
  command->add_option("--block", flags->search.block, "Tokens of a block")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{16}, int64_t{4096}));
  command->add_option("--sinks", flags->search.sinks, "First blocks, which all see")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{65536}));
  command->add_option("--keys", flags->search.keys, "Share of the keys that queries see, on average over heads")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--tokens", flags->tokens, "Tokens of the text to use, at most")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{128}, int64_t{1} << 20));
  command->add_flag("--json", flags->json, "Print one JSON object");
}

}  // namespace millrace
