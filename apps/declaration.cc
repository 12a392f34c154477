#include "declaration.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "arguments.h"
#include "help_text.h"
#include "schedule/costs/fields.h"

namespace millrace {
namespace {

// The values in an option type "{a,b}" or "TEXT:{a,b}", CLI11's description of IsMember.
std::vector<std::string> listed_values(const std::string& type) {
  std::vector<std::string> out;
  const size_t open = type.find('{'), close = type.find('}', open == std::string::npos ? 0 : open);
  if (open == std::string::npos || close == std::string::npos) return out;
  std::string value;
  for (size_t i = open + 1; i <= close; ++i) {
    if (i < close && type[i] != ',') {
      value += type[i];
      continue;
    }
    value.resize(std::min(value.find("->"), value.size()));  // of a transformer: the value that it becomes
    if (!value.empty()) out.push_back(value);
    value.clear();
  }
  return out;
}

// Families whose members a flag names.
constexpr std::pair<std::string_view, std::string_view> kFlagFamilies[] = {
    {"--policy", "policy"},
    {"--evictor", "evictor"},
    {"--drafter", "drafter"},
    {"--speculate", "drafter"},
    {"--kv-format", "kv_format"},
    {"--ctv", "kv_format"},
    {"--prefix-evict", "prefix_evictor"},
    {"--state-evict", "state_evictor"},
    {"--kv-tier", "tier"},
    {"--kv-store", "store"},
    {"--kernel", "kernel"},
    {"--compress-prompt", "prompt"},
    {"--pass", "pass"},
};

// The family whose members a flag names; "": none.
std::string family_of(const std::string& command, const std::vector<std::string>& names) {
  std::string family;
  for (const std::string& name : names) {
    for (const auto& [flag, of] : kFlagFamilies)
      if (name == flag) family = of;
    if (name == "--format") family = command == "convert" || command == "train-lab" ? "format" : "trace_format";
  }
  return command == "trace cache" && family == "policy" ? "prefix_evictor" : family;
}

// Values that a flag is known to take, though it also takes others.
std::vector<std::string> known_values(const std::string& family, const std::vector<std::string>& names) {
  static const std::vector<TechniqueInfo> all = listed_techniques();
  std::vector<std::string> out;
  for (const TechniqueInfo& info : all)
    if (info.family == family) out.push_back(info.name);
  if (std::ranges::find(names, "--family") != names.end())
    for (const TechniqueInfo& info : all)
      if (out.empty() || out.back() != info.family) out.push_back(info.family);
  if (std::ranges::find(names, "--cost") != names.end())
    for (std::string rest = builtin_cost_names(); !rest.empty();) {
      const size_t comma = std::min(rest.find(", "), rest.size());
      out.push_back(rest.substr(0, comma));
      rest.erase(0, comma + 2);
    }
  std::ranges::sort(out);
  const auto same = std::ranges::unique(out);
  out.erase(same.begin(), same.end());
  return out;
}

DeclaredOption declared(const CLI::Option& option, const std::string& command) {
  DeclaredOption out;
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  out.help = option.get_description();
  out.details = flag_text(option);
  out.group = option.get_group() == "Options" ? "Flags" : option.get_group();
  if (option.get_items_expected_max() > 0) {
    const std::string type = option.get_type_name();
    out.choices = listed_values(type);
    if (out.choices.empty()) {
      out.family = family_of(command, out.names);
      out.choices = known_values(out.family, out.names);
    }
    out.value = value_in_words(option);
    if (out.value.empty() || !listed_values(type).empty()) out.value = "VALUE";
  }
  const auto named = [&](const char* name) { return std::ranges::find(out.names, name) != out.names.end(); };
  out.technique =
      !out.value.empty() && (named("--use") || (command == "compare" && (named("--with") || named("--base"))));
  out.model = !out.value.empty() && (named("--model") || named("--model-draft"));
  const std::string text = out.help;
  out.file = !out.value.empty() && out.choices.empty() && !out.model && !out.technique &&
             (text.find("file") != std::string::npos || text.find("File") != std::string::npos ||
              text.find("folder") != std::string::npos || text.find("Folder") != std::string::npos ||
              text.find("PATH") != std::string::npos || named("--kv-load") || named("--tokenizer") ||
              named("--output") || named("--text"));
  return out;
}

DeclaredCommand declared(const CLI::App& app, const std::string& name) {
  HelpFooter footer = help_footer(app.get_footer());
  DeclaredCommand out{.name = name,
                      .summary = app.get_description(),
                      .examples = std::move(footer.examples),
                      .notes = std::move(footer.notes),
                      .usage = usage_text(app),
                      .group = app.get_group()};
  bool first = true;
  for (const CLI::Option* option : all_options(app)) {
    if (option->nonpositional() && !option->get_group().empty()) out.options.push_back(declared(*option, name));
    if (!option->get_positional()) continue;
    out.words.push_back(
        {.names = {option->get_name(true, false)}, .help = option->get_description(), .details = flag_text(*option)});
    if (first) {
      out.actions = listed_values(option->get_type_name());
      const std::string own = option->get_name(true, false);
      out.takes_model = own == "model" || own == "MODEL" || own == "IN" ||
                        (own == "name" && name != "create" && name != "pull") || own == "from";
    }
    first = false;
  }
  for (const CLI::App* one : app.get_subcommands([](const CLI::App* sub) { return !sub->get_name().empty(); }))
    if (!name.empty()) out.actions.push_back(one->get_name());
  return out;
}

void add_declared(const CLI::App& app, const std::string& before, std::vector<DeclaredCommand>& out) {
  for (const CLI::App* one : app.get_subcommands([](const CLI::App* sub) { return !sub->get_name().empty(); })) {
    const std::string name = before + one->get_name();
    out.push_back(declared(*one, name));
    add_declared(*one, name + " ", out);
  }
}

}  // namespace

std::vector<DeclaredCommand> declared_commands(const CLI::App& app) {
  std::vector<DeclaredCommand> out = {declared(app, "")};
  add_declared(app, "", out);
  return out;
}

}  // namespace millrace
