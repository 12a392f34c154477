// millrace pattern-search: which pattern each head of a model should have, for the attention pattern `minference`.
#include "evaluate/pattern_search.h"

#include <fmt/format.h>

#include "base/ordered_json.h"
#include "command.h"
#include "input.h"
#include "model_flags.h"

namespace millrace {
namespace {

constexpr const char* kPatternExamples = R"(Examples:
  millrace pattern-search -m model.gguf -f texts.txt -c 4096 --blocks 16
The text should be like the texts that the model will read. The output ends with the --use that chooses the patterns.)";

struct PatternFlags {
  ModelFlags model;
  std::string file;
  PatternSearchOptions search;
  int64_t tokens = 16384;
  bool json = false;
};

Result<int> run_pattern_search(PatternFlags flags) {
  MILLRACE_TRY(const auto loaded, flags.model.load_with_text(flags.file, flags.search.context, flags.tokens));
  const auto& [model, tokens] = loaded;
  flags.search.threads = flags.model.threads;
  MILLRACE_TRY(const auto gains, measure_patterns(model, tokens, flags.search));
  const ChosenPatterns own = choose_patterns(gains), same = same_pattern(gains);
  const std::string use = fmt::format("attention=minference:{},heads={}", flags.search.options(), own.text());
  if (flags.json) {
    print_json_line({{"heads", own.text()},
                     {"mass", own.mass},
                     {"keys", own.keys},
                     {"same_pattern", same.heads.front()},
                     {"same_mass", same.mass},
                     {"same_keys", same.keys},
                     {"use", use}});
    return 0;
  }
  fmt::print("own patterns: heads see {:.1f} % of the keys, with {:.1f} % of the attention\n", 100 * own.keys,
             100 * own.mass);
  fmt::print("the same for all ({}): {:.1f} % of the keys, with {:.1f} %\n", same.heads.front(), 100 * same.keys,
             100 * same.mass);
  fmt::print("use them:   --use {}\n", use);
  return 0;
}

}  // namespace

void add_pattern_search_command(CLI::App& app) {
  auto flags = std::make_shared<PatternFlags>();
  CLI::App* command =
      add_command(app, "pattern-search", "Find which attention pattern each head of a model should have",
                  kPatternExamples, [=] { return run_pattern_search(*flags); });
  flags->model.add_with_text_to(command, &flags->file);
  const auto count = [&](const char* name, int64_t& to, const char* help, int64_t least, int64_t most) {
    command->add_option(name, to, help)->capture_default_str()->check(CLI::Range(least, most));
  };
  count("-c,--context", flags->search.context, "Tokens of a window of the text", 2, int64_t{1} << 20);
  count("--block", flags->search.block, "Tokens of a block", 16, 256);
  count("--blocks", flags->search.blocks, "Blocks that a query sees in addition to the first and the newest ones", 0,
        65535);
  count("--sinks", flags->search.sinks, "First blocks, which all see", 0, 65536);
  count("--window", flags->search.window, "Newest blocks, which all see, with the query's own", 1, 65536);
  count("--last", flags->search.last, "Blocks from one finding of lines to the next", 1, 64);
  count("--tokens", flags->tokens, "Tokens of the text to use, at most", 128, int64_t{1} << 20);
  command->add_flag("--json", flags->json, "Print one JSON object");
}

}  // namespace millrace
