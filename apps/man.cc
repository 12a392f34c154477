// millrace man: prints a manual page, or writes all of them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "arguments.h"
#include "base/pending_file.h"
#include "command.h"
#include "declaration.h"
#include "man_page.h"

namespace millrace {
namespace {

constexpr const char* kManExamples = R"(Examples:
  millrace man | man -l -             millrace(1): the commands, the files and the environment
  millrace man run | man -l -         millrace-run(1): every flag of a command
  millrace man --all ./man1           writes millrace.1, millrace-run.1 ... into a folder)";

Result<int> write_pages(const std::vector<DeclaredCommand>& commands, const std::string& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) return Error::resource(fmt::format("{}: cannot be created: {}", folder, failed.message()));
  MILLRACE_TRY_VOID(write_whole_file((std::filesystem::path(folder) / "millrace.1").string(), program_page(commands)));
  for (const DeclaredCommand& command : commands)
    if (has_page(command))
      MILLRACE_TRY_VOID(
          write_whole_file((std::filesystem::path(folder) / fmt::format("millrace-{}.1", command.name)).string(),
                           command_page(commands, command.name)));
  return 0;
}

// `words`: a command, with its action if it has some ("trace stats"), whose page is the command's; {}: the overview.
Result<int> print_page(const std::vector<DeclaredCommand>& commands, const std::vector<std::string>& words) {
  const std::string name = fmt::format("{}", fmt::join(words, " "));
  std::vector<std::string> names;
  for (const DeclaredCommand& command : commands) names.push_back(command.name);
  if (!words.empty() && std::ranges::find(names, name) == names.end())
    return Error::user(fmt::format("man: {}: no such command{}", name.substr(0, 200), suggestion(name, names)));
  fmt::print("{}", words.empty() ? program_page(commands) : command_page(commands, name.substr(0, name.find(' '))));
  return 0;
}

}  // namespace

void add_man_command(CLI::App& app) {
  struct Flags {
    std::vector<std::string> words;
    std::string folder;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      add_command(app, "man", "Print the manual page of millrace or of a command", kManExamples, [=, &app] {
        const auto commands = declared_commands(app);
        if (app.get_subcommand("man")->count("--all") == 0) return print_page(commands, flags->words);
        if (flags->folder.empty()) return Result<int>(Error::user("man: --all: needs a folder"));
        return write_pages(commands, flags->folder);
      });
  CLI::Option* words =
      command->add_option("COMMAND", flags->words, "Command; default: the page of millrace itself")->expected(0, 2);
  command->add_option("--all", flags->folder, "Write the pages of millrace and of every command into this folder")
      ->excludes(words);
}

}  // namespace millrace
