// millrace man: prints the manual page, generated from the command line's declaration.
#include <fmt/format.h>

#include "base/version.h"
#include "command.h"
#include "declaration.h"

namespace millrace {
namespace {

constexpr const char* kManExamples = R"(Examples:
  millrace man | man -l -
  millrace man > /usr/local/share/man/man1/millrace.1)";

// Escapes text for roff: backslashes, requests at the beginning of a line, and minus signs.
std::string roff(const std::string& text) {
  std::string out;
  bool begins = true;
  for (const char c : text) {
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
    begins = c == '\n';
  }
  return out;
}

std::string options_text(const DeclaredCommand& command) {
  std::string out;
  for (const DeclaredOption& option : command.options) {
    out += ".TP\n";
    std::string names;
    for (const std::string& name : option.names) names += (names.empty() ? "" : ", ") + ("\\fB" + roff(name) + "\\fR");
    out += names + (option.value.empty() ? "" : " \\fI" + roff(option.value) + "\\fR") + "\n" +
           (option.help.empty() ? "\\&" : roff(option.help)) + "\n";
    if (!option.choices.empty()) {
      std::string values;
      for (const std::string& one : option.choices) values += (values.empty() ? "" : ", ") + one;
      out += "One of " + roff(values) + ".\n";
    }
  }
  return out;
}

std::string page(const std::vector<DeclaredCommand>& commands) {
  std::string out = fmt::format(
      ".TH MILLRACE 1 \"\" \"{}\" \"User Commands\"\n.SH NAME\nmillrace \\- LLM inference and serving engine\n"
      ".SH SYNOPSIS\n\\fBmillrace\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR ...]\n.SH DESCRIPTION\n{}\n.SH COMMANDS\n",
      roff(kVersionText), roff(commands.front().summary));
  for (const DeclaredCommand& command : commands)
    if (!command.name.empty() && command.name.find(' ') == std::string::npos)
      out += ".TP\n\\fB" + roff(command.name) + "\\fR\n" + roff(command.summary) + "\n";
  out += ".SH OPTIONS\n" + options_text(commands.front());
  for (const DeclaredCommand& command : commands) {
    if (command.name.empty()) continue;
    out += ".SH MILLRACE " + roff(command.name) + "\n" + roff(command.summary) + ".\n" + options_text(command);
    if (!command.examples.empty()) out += ".PP\n.nf\n" + roff(command.examples) + "\n.fi\n";
  }
  return out +
         ".SH EXIT STATUS\n0 success, 2 usage, 3 an input file is missing or damaged, 4 not supported, 5 not enough "
         "memory or disk, 6 network, 7 answers differ, 1 anything else.\n";
}

}  // namespace

void add_man_command(CLI::App& app) {
  add_command(app, "man", "Print the manual page", kManExamples, [&app]() -> Result<int> {
    fmt::print("{}", page(declared_commands(app)));
    return 0;
  });
}

}  // namespace millrace
