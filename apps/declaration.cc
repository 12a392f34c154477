#include "declaration.h"

#include <algorithm>

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
    if (!value.empty()) out.push_back(value);
    value.clear();
  }
  return out;
}

DeclaredOption declared(const CLI::Option& option) {
  DeclaredOption out;
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  out.help = option.get_description();
  if (option.get_items_expected_max() > 0) {
    const std::string type = option.get_type_name();
    out.choices = listed_values(type);
    const size_t colon = type.find(':');
    out.value = type.substr(0, colon);
    if (out.value.empty()) out.value = "VALUE";
  }
  const auto named = [&](const char* name) { return std::ranges::find(out.names, name) != out.names.end(); };
  out.file = !out.value.empty() && out.choices.empty() &&
             (named("--model") || named("--file") || named("--config") || named("--output") || named("--report") ||
              named("--trace") || named("--recording") || named("--record") || named("--api-key-file") ||
              named("--record-plans") || named("--kv-ssd") || named("--tokenizer") || named("--predict") ||
              named("--grammar-file"));
  return out;
}

DeclaredCommand declared(const CLI::App& app, const std::string& name) {
  DeclaredCommand out{.name = name, .summary = app.get_description(), .examples = app.get_footer()};
  for (const CLI::Option* option : app.get_options())
    if (option->nonpositional()) out.options.push_back(declared(*option));
  return out;
}

}  // namespace

std::vector<DeclaredCommand> declared_commands(const CLI::App& app) {
  std::vector<DeclaredCommand> out = {declared(app, "")};
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    out.push_back(declared(*command, command->get_name()));
  return out;
}

}  // namespace millrace
