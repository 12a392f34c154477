#include "help_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>

#include "arguments.h"
#include "terminal/display_width.h"

namespace millrace {
namespace {

constexpr size_t kNameColumns = 28;               // columns of a flag's name before its text
constexpr size_t kNarrowest = 40, kWidest = 100;  // columns of a line
constexpr size_t kShortFlags = 14;                // a command with at most this many flags has no shorter list
constexpr double kNoLimit = 1e6;                  // larger bounds say nothing to a reader

// Columns of a line: those of the terminal, or kWidest where there is none.
size_t help_columns() {
  const size_t columns = terminal_columns();
  return columns == 0 ? kWidest : std::clamp(columns, kNarrowest, kWidest);
}

// The flags of a command that most users need; of other commands, the first ones.
const std::map<std::string, std::vector<std::string>> kFirstFlags = {
    {"run",
     {"--model", "--prompt", "--file", "--system", "--max-tokens", "--context", "--temp", "--seed", "--json-schema",
      "--threads", "--json"}},
    {"chat",
     {"--model", "--system", "--max-tokens", "--context", "--temp", "--trim", "--threads", "--memory", "--history"}},
    {"serve",
     {"--model", "--host", "--port", "--models-dir", "--alias", "--api-key", "--parallel", "--context", "--memory",
      "--threads"}},
    {"bench",
     {"--model", "--n-prompt", "--n-gen", "--n-depth", "--parallel", "--threads", "--repetitions", "--kv-format",
      "--roof", "--output", "--picture"}},
    {"perplexity",
     {"--model", "--file", "--context", "--chunks", "--all", "--kv-format", "--kl-divergence", "--threads", "--json"}},
    {"replay",
     {"--trace", "--recording", "--in-process", "--url", "--model", "--rate", "--limit", "--max-streams", "--policy",
      "--json", "--picture"}},
    {"simulate",
     {"--trace", "--cost", "--policy", "--kv-tokens", "--max-streams", "--nodes", "--rate", "--limit", "--json",
      "--picture"}},
    {"compare",
     {"--model", "--with", "--on", "--base", "--text", "--items", "--repeat", "--threads", "--json", "--html",
      "--resume", "--picture"}},
};

// Breaks `text` into lines after the first `indent` columns.
std::string wrapped_at(const std::string& text, size_t indent) {
  std::string out;
  size_t column = indent;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (column > indent && column + 1 + word.size() > help_columns()) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    }
    if (column > indent) out += ' ', ++column;
    out += word;
    column += word.size();
  }
  return out;
}

std::string number_text(double value) { return fmt::format("{:g}", value); }

// "0 to 1024", "at least 1"; "": no limit worth a word.
std::string range_in_words(const std::string& type) {
  const size_t at = type.find(" in [");
  double low = 0, high = 0;
  if (at == std::string::npos || std::sscanf(type.c_str() + at, " in [%lf - %lf]", &low, &high) != 2) return "";
  if (high < kNoLimit) return number_text(low) + " to " + number_text(high);
  return low > 0 ? "at least " + number_text(low) : "";
}

std::string type_in_words(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.find('{'), close = type.find('}', open == std::string::npos ? 0 : open);
  if (open != std::string::npos && close != std::string::npos && type.find("->") == std::string::npos) {
    std::string list = type.substr(open + 1, close - open - 1);
    std::ranges::replace(list, ',', '|');
    if (list.size() <= 40) return list;
  }
  if (type.starts_with("INT") || type.starts_with("UINT")) return "N";
  if (type.starts_with("FLOAT")) return "NUMBER";
  if (type.starts_with("BOOLEAN")) return "";
  const size_t colon = type.find(':');
  const std::string name = type.substr(0, colon);
  return name.empty() || name.find('{') != std::string::npos ? "TEXT" : name;
}

constexpr size_t kCommentIndent = 6;  // of the comment of an example that is too long for its line

// "  command   comment" as two parts; the comment may be empty.
std::pair<std::string, std::string> example_parts(const std::string& line) {
  const size_t gap = line.rfind("  "), begin = line.find_first_not_of(' ');
  const size_t comment = gap == std::string::npos || gap < begin ? gap : line.find_first_not_of(' ', gap);
  if (gap == std::string::npos || gap < begin || comment == std::string::npos) return {line, ""};
  return {line.substr(0, line.find_last_not_of(' ', gap) + 1), line.substr(comment)};
}

// A command that is longer than a line, with line ends before its flags.
std::string command_lines(const std::string& command) {
  std::string out, line = command;
  while (line.size() > help_columns()) {
    const size_t at = line.rfind(" -", help_columns() - 3);
    if (at == std::string::npos || at <= kCommentIndent) break;
    out += line.substr(0, at) + " \\\n";
    line = std::string(4, ' ') + line.substr(at + 1);
  }
  return out + line;
}

std::string example_text(const std::string& line) {
  const size_t begin = std::min(line.find_first_not_of(' '), line.size());
  if (begin > help_columns() / 2)  // more of the comment above
    return std::string(kCommentIndent, ' ') + wrapped_at(line.substr(begin), kCommentIndent);
  if (line.size() <= help_columns()) return line;
  const auto [command, comment] = example_parts(line);
  std::string out = command_lines(command);
  if (!comment.empty()) out += "\n" + std::string(kCommentIndent, ' ') + wrapped_at(comment, kCommentIndent);
  return out;
}

// A line of a list, such as "  NAME  what it is": further lines begin below the second part.
std::string item_text(const std::string& line) {
  if (line.size() <= help_columns()) return line;
  const size_t begin = line.find_first_not_of(' '), gap = line.find("  ", begin);
  const size_t text = gap == std::string::npos ? begin : line.find_first_not_of(' ', gap);
  const size_t indent = gap == std::string::npos || text > help_columns() / 2 ? begin + 2 : text;
  if (indent == text) return line.substr(0, text) + wrapped_at(line.substr(text), indent);
  return line.substr(0, begin) + wrapped_at(line.substr(begin), indent);
}

// Paragraphs are filled; lines that begin with a blank are items of a list.
std::string notes_text(const std::string& notes) {
  std::string out, paragraph;
  const auto end_paragraph = [&] {
    if (!paragraph.empty()) out += wrapped_at(paragraph, 0) + "\n";
    paragraph.clear();
  };
  std::istringstream lines(notes);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line[0] != ' ') {
      paragraph += (paragraph.empty() ? "" : " ") + line;
      if (line.ends_with(':') || line.ends_with(": ")) end_paragraph();
      continue;
    }
    end_paragraph();
    out += line.empty() ? "\n" : item_text(line) + "\n";
  }
  end_paragraph();
  while (out.ends_with('\n')) out.pop_back();
  return out;
}

// "trace cache": the name of a command as it is typed.
std::string full_name(const CLI::App& command) {
  std::string name = command.get_name();
  for (const CLI::App* parent = command.get_parent(); parent && parent->get_parent(); parent = parent->get_parent())
    name = parent->get_name() + " " + name;
  return name;
}

std::string as_sentence(const std::string& text) { return text.empty() || text.ends_with('.') ? text : text + "."; }

std::string option_text(const CLI::Option& option) {
  std::string names = option.get_positional() ? option.get_name(true, false) : option.get_name(false, true);
  size_t at = 0;
  while ((at = names.find(',', at)) != std::string::npos) names.replace(at, 1, ", "), at += 2;
  const std::string value = option.get_items_expected_max() > 0 ? type_in_words(option) : "";
  std::string head = "  " + names + (value.empty() || option.get_positional() ? "" : " " + value);
  const std::string text = flag_text(option);
  std::string out = head;
  if (head.size() + 2 > kNameColumns) {
    out += "\n" + std::string(kNameColumns, ' ');
  } else {
    out += std::string(kNameColumns - head.size(), ' ');
  }
  return out + wrapped_at(text, kNameColumns) + "\n";
}

std::vector<const CLI::Option*> flags_of(const CLI::App& app) {
  std::vector<const CLI::Option*> out;
  for (const CLI::Option* option : all_options(app))
    if (option->nonpositional() && !option->get_positional() && !option->get_group().empty() &&
        option != app.get_help_ptr() && option != app.get_help_all_ptr())
      out.push_back(option);
  return out;
}

std::vector<const CLI::Option*> first_flags(const CLI::App& app, const std::vector<const CLI::Option*>& all) {
  const auto chosen = kFirstFlags.find(app.get_name());
  if (all.size() <= kShortFlags) return all;
  if (chosen == kFirstFlags.end()) return {all.begin(), all.begin() + 10};
  std::vector<const CLI::Option*> out;
  for (const std::string& name : chosen->second)
    for (const CLI::Option* option : all)
      if (option->check_name(name)) out.push_back(option);
  for (const CLI::Option* option : all)
    if (option->get_required() && std::ranges::find(out, option) == out.end()) out.push_back(option);
  return out;
}

class HelpText : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode mode) const override {
    return app->get_parent() ? command_help(*app, mode != CLI::AppFormatMode::Normal) : program_help(*app);
  }

 private:
  static std::string program_help(const CLI::App& app) {
    std::string out = wrapped_at(app.get_description(), 0) + "\n\nUsage: millrace COMMAND [FLAGS]\n";
    std::vector<std::string> groups;
    const auto commands = app.get_subcommands([](const CLI::App* one) { return !one->get_name().empty(); });
    for (const CLI::App* command : commands)
      if (std::ranges::find(groups, command->get_group()) == groups.end()) groups.push_back(command->get_group());
    for (const std::string& group : groups) {
      if (group.empty()) continue;
      out += "\n" + group + ":\n";
      for (const CLI::App* command : commands)
        if (command->get_group() == group)
          out += fmt::format("  {:<17}{}\n", command->get_name(), wrapped_at(command->get_description(), 19));
    }
    out += "\nFlags:\n";
    for (const CLI::Option* option : app.get_options()) out += option_text(*option);
    const HelpFooter footer = help_footer(app.get_footer());
    return out + "\n" + footer.examples + "\n\n" + footer.notes + "\n";
  }

  static std::string command_help(const CLI::App& app, bool everything) {
    const auto commands = app.get_subcommands([](const CLI::App* one) { return !one->get_name().empty(); });
    std::string positionals;
    for (const CLI::Option* option : app.get_options())
      if (option->get_positional()) positionals += option_text(*option);
    const HelpFooter footer = help_footer(app.get_footer());
    std::string out =
        wrapped_at(as_sentence(app.get_description()), 0) + "\n\nUsage: millrace " + usage_text(app) + "\n";
    if (!footer.examples.empty()) out += "\n" + footer.examples + "\n";
    if (!positionals.empty()) out += "\nArguments:\n" + positionals;
    if (!commands.empty()) out += "\nCommands:\n";
    for (const CLI::App* command : commands)
      out += fmt::format("  {:<17}{}\n", command->get_name(), wrapped_at(command->get_description(), 19));
    const auto all = flags_of(app);
    const auto shown = everything ? all : first_flags(app, all);
    std::vector<std::string> groups;
    for (const CLI::Option* option : shown)
      if (std::ranges::find(groups, option->get_group()) == groups.end()) groups.push_back(option->get_group());
    if (!everything) groups.resize(std::min<size_t>(groups.size(), 1));
    for (const std::string& group : groups) {
      out += fmt::format("\n{}:\n", !everything || group == "Options" ? "Flags" : group);
      for (const CLI::Option* option : shown)
        if (!everything || option->get_group() == group) out += option_text(*option);
    }
    if (!everything && shown.size() < all.size())
      out += fmt::format("\n{} more: millrace {} --help-all\n", all.size() - shown.size(), full_name(app));
    if (!footer.notes.empty()) out += "\n" + footer.notes + "\n";
    return out;
  }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<HelpText>(); }

std::string flag_text(const CLI::Option& option) {
  std::string text = option.get_description();
  if (const std::string range = range_in_words(option.get_type_name()); !range.empty()) text += " (" + range + ")";
  if (const std::string preset = option.get_default_str();
      !preset.empty() && preset != "\"\"" && preset != "[]" && text.find("default") == std::string::npos)
    text += " [" + preset + "]";
  return option.get_required() ? text + " (required)" : text;
}

std::string usage_text(const CLI::App& command) {
  const auto commands = command.get_subcommands([](const CLI::App* one) { return !one->get_name().empty(); });
  std::string out = full_name(command) + (commands.empty() ? "" : " COMMAND");
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional()) continue;
    const std::string own = option->get_name(true, false) + (option->get_items_expected_max() > 1 ? "..." : "");
    out += option->get_required() ? " " + own : " [" + own + "]";
  }
  for (const CLI::Option* option : all_options(command))
    if (option->get_required() && !option->get_positional() && !option->get_lnames().empty())
      out += " --" + option->get_lnames().front() + " " + type_in_words(*option);
  return out + " [FLAGS]";
}

HelpFooter help_footer(const std::string& footer) {
  HelpFooter out;
  const size_t begin = footer.starts_with("Examples:") ? 0 : footer.find("\n\nExamples:");
  if (begin == std::string::npos) {
    out.notes = notes_text(footer);
    return out;
  }
  const size_t first = footer.find("Examples:", begin), end = std::min(footer.find("\n\n", first), footer.size());
  std::istringstream lines(footer.substr(first, end - first));
  for (std::string line; std::getline(lines, line);)
    out.examples += (out.examples.empty() ? "" : "\n") + example_text(line);
  std::string notes = footer.substr(0, begin);
  if (end < footer.size()) notes += footer.substr(begin > 0 ? end : end + 2);
  out.notes = notes_text(notes);
  return out;
}

std::string value_in_words(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";
  const std::string range = range_in_words(option.get_type_name());
  return type_in_words(option) + (range.empty() ? "" : ", " + range);
}

}  // namespace millrace
