// millrace help [COMMAND] and millrace version: the words for --help and --version.
#include <fmt/format.h>

#include "arguments.h"
#include "base/version.h"
#include "command.h"

namespace millrace {
namespace {

constexpr const char* kHelpExamples = R"(Examples:
  millrace help           the commands
  millrace help run       the flags that most users need, as millrace run --help
  millrace help trace stats)";

constexpr const char* kVersionExamples = R"(Examples:
  millrace version        as millrace --version)";

Result<int> print_help(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  for (const std::string& word : words) {
    std::vector<std::string> names;
    const CLI::App* found = nullptr;
    for (const CLI::App* one : command->get_subcommands([](const CLI::App* sub) { return !sub->get_name().empty(); })) {
      names.push_back(one->get_name());
      if (one->get_name() == word) found = one;
    }
    if (!found)
      return Error::user(fmt::format("help: {}: no such command{}", word.substr(0, 200), suggestion(word, names)));
    command = found;
  }
  // Not help(), which describes the command that was called: this one.
  fmt::print("{}", command->get_formatter()->make_help(command, "", CLI::AppFormatMode::Normal));
  return 0;
}

}  // namespace

void add_help_commands(CLI::App& app) {
  auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* help =
      add_command(app, "help", "Describe a command", kHelpExamples, [=, &app] { return print_help(app, *words); });
  help->add_option("COMMAND", *words, "Command; default: all commands");
  add_command(app, "version", "Print the version", kVersionExamples, []() -> Result<int> {
    fmt::print("{}\n", kVersionText);
    return 0;
  });
}

}  // namespace millrace
