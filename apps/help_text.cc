#include "help_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>

#include "arguments.h"

namespace millrace {
namespace {

constexpr size_t kNameColumns = 28;   // columns of a flag's name before its text
constexpr size_t kHelpColumns = 100;  // columns of a line
constexpr size_t kShortFlags = 14;    // a command with at most this many flags has no shorter list
constexpr double kNoLimit = 1e6;      // larger bounds say nothing to a reader

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
     {"--model", "--base", "--with", "--on", "--text", "--items", "--repeat", "--resume", "--threads", "--json",
      "--html", "--picture"}},
};

// Breaks `text` into lines after the first `indent` columns.
std::string wrapped_at(const std::string& text, size_t indent) {
  std::string out;
  size_t column = indent;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (column > indent && column + 1 + word.size() > kHelpColumns) {
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

std::string option_text(const CLI::Option& option) {
  std::string names = option.get_positional() ? option.get_name(true, false) : option.get_name(false, true);
  size_t at = 0;
  while ((at = names.find(',', at)) != std::string::npos) names.replace(at, 1, ", "), at += 2;
  const std::string value = option.get_items_expected_max() > 0 ? type_in_words(option) : "";
  std::string head = "  " + names + (value.empty() || option.get_positional() ? "" : " " + value);
  std::string text = option.get_description();
  if (const std::string range = range_in_words(option.get_type_name()); !range.empty()) text += " (" + range + ")";
  if (const std::string preset = option.get_default_str();
      !preset.empty() && preset != "\"\"" && preset != "[]" && text.find("default") == std::string::npos)
    text += " [" + preset + "]";
  if (option.get_required()) text += " (required)";
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
    if (option->nonpositional() && !option->get_group().empty() && option != app.get_help_ptr() &&
        option != app.get_help_all_ptr())
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
    return out + "\n" + app.get_footer() + "\n";
  }

  static std::string command_help(const CLI::App& app, bool everything) {
    std::string name = app.get_name();
    for (const CLI::App* parent = app.get_parent(); parent && parent->get_parent(); parent = parent->get_parent())
      name = parent->get_name() + " " + name;
    const auto commands = app.get_subcommands([](const CLI::App* one) { return !one->get_name().empty(); });
    std::string usage = commands.empty() ? "" : " COMMAND";
    std::string positionals;
    for (const CLI::Option* option : app.get_options()) {
      if (!option->get_positional()) continue;
      const std::string own = option->get_name(true, false) + (option->get_items_expected_max() > 1 ? "..." : "");
      usage += option->get_required() ? " " + own : " [" + own + "]";
      positionals += option_text(*option);
    }
    std::string out = app.get_description() + "\n\nUsage: millrace " + name + usage + " [FLAGS]\n";
    if (!positionals.empty()) out += "\n" + positionals;
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
      out += fmt::format("\n{} more: millrace {} --help-all\n", all.size() - shown.size(), name);
    if (!app.get_footer().empty()) out += "\n" + app.get_footer() + "\n";
    return out;
  }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<HelpText>(); }

std::string value_in_words(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";
  const std::string range = range_in_words(option.get_type_name());
  return type_in_words(option) + (range.empty() ? "" : ", " + range);
}

}  // namespace millrace
