#include "man_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/version.h"

namespace millrace {
namespace {

constexpr std::pair<const char*, const char*> kExitStatus[] = {
    {"0", "success"},
    {"1", "any other error"},
    {"2", "usage: an unknown command or flag, or a value out of range"},
    {"3", "an input file is missing or damaged"},
    {"4", "not supported"},
    {"5", "not enough memory or disk"},
    {"6", "network"},
    {"7", "answers differ"},
    {"130", "interrupted"},
    {"141", "the reader of the output has ended, as head does"},
};

constexpr std::pair<const char*, const char*> kEnvironment[] = {
    {"MILLRACE_ISA", "instruction set at most: ref, avx2, avx512, amx, or less such as avx512-bf16"},
    {"MILLRACE_API_KEY", "key for a server that ps, stop, replay and exactness talk to"},
    {"MILLRACE_MODELS", "folder of the models that create and cp make"},
    {"MILLRACE_CAIRO", "folder of the libraries that draw pictures, where the system does not find them"},
    {"MILLRACE_SHORT_NAMES", "file with short names of your own"},
    {"HF_HOME, HF_HUB_CACHE", "where downloads are, shared with Hugging Face's tools"},
    {"HF_ENDPOINT", "the hub"},
    {"HF_HUB_OFFLINE", "1: nothing is downloaded"},
    {"HF_TOKEN, HF_TOKEN_PATH", "token for the hub, or a file with it"},
    {"XDG_CONFIG_HOME, XDG_DATA_HOME, XDG_CACHE_HOME", "folders in place of ~/.config, ~/.local/share and ~/.cache"},
};

constexpr std::pair<const char*, const char*> kFiles[] = {
    {"~/.config/millrace/config.toml", "flags, in one table for each command"},
    {"/etc/millrace/config.toml", "the same, if the first file does not exist"},
    {"~/.config/millrace/short-names.toml", "short names of models"},
    {"~/.local/share/millrace/models/", "models of create and cp"},
    {"~/.cache/huggingface/hub/", "downloads"},
};

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

std::string roff_sentence(std::string text) {
  if (!text.empty() && !text.ends_with('.') && !text.ends_with(']') && !text.ends_with(')')) text += '.';
  return roff(text);
}

std::string bold(const std::string& text) { return "\\fB" + roff(text) + "\\fR"; }

std::string roff_entry(const std::string& head, const std::string& text) {
  return ".TP\n" + head + "\n" + (text.empty() ? "\\&" : text) + "\n";
}

std::string options_text(const std::vector<DeclaredOption>& options, const std::string& group) {
  std::string out;
  for (const DeclaredOption& option : options) {
    if (option.group != group) continue;
    std::string names;
    for (const std::string& name : option.names) names += (names.empty() ? "" : ", ") + bold(name);
    if (!option.value.empty()) names += " \\fI" + roff(option.value) + "\\fR";
    std::string text = roff_sentence(option.details);
    if (!option.choices.empty())
      text += fmt::format("\nOne of {}.", roff(fmt::format("{}", fmt::join(option.choices, ", "))));
    out += roff_entry(names, text);
  }
  return out;
}

// The arguments and flags of a command, each group below `heading`.
std::string arguments_text(const DeclaredCommand& command, const char* heading) {
  std::string out;
  if (!command.words.empty()) out += fmt::format("{} Arguments\n", heading);
  for (const DeclaredOption& word : command.words)
    out += roff_entry("\\fI" + roff(word.names.front()) + "\\fR", roff_sentence(word.details));
  std::vector<std::string> groups;
  for (const DeclaredOption& option : command.options)
    if (std::ranges::find(groups, option.group) == groups.end()) groups.push_back(option.group);
  for (const std::string& group : groups)
    out += fmt::format("{} {}\n{}", heading, roff(group), options_text(command.options, group));
  return out;
}

// Lines that are shown as they are.
std::string lines_text(const std::string& lines) { return ".PP\n.nf\n" + roff(lines) + "\n.fi\n"; }

// "Examples:" and what follows: without the first line.
std::string examples_text(const std::string& examples) {
  const size_t end = examples.find('\n');
  return end == std::string::npos ? "" : lines_text(examples.substr(end + 1));
}

template <size_t n>
std::string table_section(const char* title, const std::pair<const char*, const char*> (&rows)[n]) {
  std::string out = fmt::format(".SH {}\n", title);
  for (const auto& [name, text] : rows) out += roff_entry(bold(name), roff(text) + ".");
  return out;
}

std::string page_head(const std::string& name, const std::string& summary) {
  std::string title = name;
  std::ranges::transform(title, title.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return fmt::format(".TH {} 1 \"\" \"{}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n", roff(title), roff(kVersionText),
                     roff(name), roff(summary));
}

std::string see_also(const std::vector<std::string>& names) {
  std::string out = ".SH SEE ALSO\n";
  for (const std::string& name : names)
    out += fmt::format("{}\\fR(1){}\n", bold(name), &name == &names.back() ? "" : ",");
  return out;
}

}  // namespace

bool has_page(const DeclaredCommand& command) {
  return !command.name.empty() && command.name.find(' ') == std::string::npos;
}

std::string program_page(const std::vector<DeclaredCommand>& commands) {
  const DeclaredCommand& program = commands.front();
  std::string out = page_head("millrace", "LLM inference and serving engine") +
                    ".SH SYNOPSIS\n\\fBmillrace\\fR \\fICOMMAND\\fR [\\fIARGUMENT\\fR ...] [\\fIFLAG\\fR ...]\n"
                    ".SH DESCRIPTION\n" +
                    roff_sentence(program.summary) + "\n.SH COMMANDS\n";
  std::vector<std::string> groups, pages;
  for (const DeclaredCommand& command : commands)
    if (has_page(command) && std::ranges::find(groups, command.group) == groups.end()) groups.push_back(command.group);
  for (const std::string& group : groups) {
    out += fmt::format(".SS {}\n", roff(group));
    for (const DeclaredCommand& command : commands)
      if (has_page(command) && command.group == group) {
        out += roff_entry(fmt::format("{}(1)", bold("millrace-" + command.name)), roff_sentence(command.summary));
        pages.push_back("millrace-" + command.name);
      }
  }
  out += ".SH OPTIONS\n";
  for (const DeclaredOption& option : program.options) out += options_text({option}, option.group);
  return out + ".SH EXAMPLES\n" + examples_text(program.examples) + table_section("EXIT STATUS", kExitStatus) +
         table_section("ENVIRONMENT", kEnvironment) + table_section("FILES", kFiles) + see_also(pages);
}

std::string command_page(const std::vector<DeclaredCommand>& commands, const std::string& name) {
  const DeclaredCommand& own = *std::ranges::find(commands, name, &DeclaredCommand::name);
  std::vector<const DeclaredCommand*> parts;  // commands of this command
  std::vector<std::string> others = {"millrace"};
  for (const DeclaredCommand& command : commands) {
    if (command.name.starts_with(name + " ")) parts.push_back(&command);
    if (has_page(command) && command.group == own.group && command.name != name)
      others.push_back("millrace-" + command.name);
  }
  std::string out =
      page_head("millrace-" + name, own.summary) + ".SH SYNOPSIS\n" + bold("millrace " + own.usage) + "\n";
  for (const DeclaredCommand* part : parts) out += ".br\n" + bold("millrace " + part->usage) + "\n";
  out += ".SH DESCRIPTION\n" + roff_sentence(own.summary) + "\n";
  if (!own.notes.empty()) out += lines_text(own.notes);
  out += ".SH OPTIONS\n" + arguments_text(own, ".SS");
  for (const DeclaredCommand* part : parts) {
    out += fmt::format(".SH MILLRACE {}\n{}\n", roff(part->name), roff_sentence(part->summary));
    if (!part->notes.empty()) out += lines_text(part->notes);
    out += arguments_text(*part, ".SS");
  }
  out += ".SH EXAMPLES\n" + examples_text(own.examples);
  for (const DeclaredCommand* part : parts) out += examples_text(part->examples);
  return out + table_section("EXIT STATUS", kExitStatus) + table_section("ENVIRONMENT", kEnvironment) +
         table_section("FILES", kFiles) + see_also(others);
}

}  // namespace millrace
