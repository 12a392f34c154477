#include "completion_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "declaration.h"
#include "hub_model.h"
#include "run/embedded_model.h"
#include "techniques/technique_use.h"

namespace millrace {
namespace {

std::vector<std::string> model_words() {
  std::vector<std::string> out;
  for (const EmbeddedModel& model : embedded_models()) out.emplace_back(model.short_name);
  for (const StoredModel& model : ModelStore().list()) out.push_back(model.name);
  if (const auto names = short_names(); names.ok())
    for (const ShortName& name : *names) {
      out.push_back(name.name);
      if (name.latest) out.push_back(name.name.substr(0, name.name.find(':')));
    }
  return out;
}

// The key=value list after `before`, of which `given` is typed: keys that it lacks, or values of its last key.
std::vector<std::string> option_words(const TechniqueInfo& info, std::string before, std::string_view given) {
  std::set<std::string_view> keys;
  for (size_t comma = given.find(','); comma != std::string_view::npos; comma = given.find(',')) {
    keys.insert(given.substr(0, given.find('=')));
    before += given.substr(0, comma + 1);
    given.remove_prefix(comma + 1);
  }
  std::vector<std::string> out;
  const size_t equals = given.find('=');
  for (const OptionSpec& option : info.options) {
    if (equals == std::string_view::npos && !keys.contains(option.name)) {
      out.push_back(before + option.name + "=");
    } else if (equals != std::string_view::npos && given.substr(0, equals) == option.name) {
      if (option.type == OptionSpec::Type::boolean)
        for (const char* value : {"true", "false"}) out.push_back(before + option.name + "=" + value);
      else if (!option.default_value.empty())
        out.push_back(before + option.name + "=" + option.default_value);
    }
  }
  return out;
}

// NAME[:key=value,...] of a family, where `text` is typed.
std::vector<std::string> member_words(const std::string& family, const std::string& text) {
  std::vector<std::string> out;
  const size_t colon = text.find(':');
  for (const TechniqueInfo& info : listed_techniques()) {
    if (info.family != family) continue;
    if (colon == std::string::npos) {
      out.push_back(info.name);
      if (info.name == text && !info.options.empty()) out.push_back(info.name + ":");
    } else if (text.compare(0, colon, info.name) == 0) {
      return option_words(info, text.substr(0, colon + 1), std::string_view(text).substr(colon + 1));
    }
  }
  return out;
}

// FAMILY=NAME[:key=value,...]. In a configuration of `compare`, several of them are joined by " + ".
std::vector<std::string> use_words(const std::string& command, const std::string& text) {
  const size_t plus = command == "compare" ? text.rfind("+ ") : std::string::npos;
  const std::string before = plus == std::string::npos ? "" : text.substr(0, plus + 2);
  const std::string choice = text.substr(before.size());
  const size_t equals = choice.find('=');
  std::vector<std::string> out;
  if (equals == std::string::npos) {
    for (const std::string_view family : family_names_in(command)) out.push_back(fmt::format("{}{}=", before, family));
    return out;
  }
  const std::string family = choice.substr(0, equals);
  const auto families = family_names_in(command);
  if (std::ranges::find(families, family) == families.end()) return out;
  for (const std::string& word : member_words(family, choice.substr(equals + 1)))
    out.push_back(fmt::format("{}{}={}", before, family, word));
  return out;
}

}  // namespace

bool print_completion_words(const std::vector<std::string>& arguments) {
  if (arguments.size() < 4 || arguments[1] != "completion" || arguments[2] != "--words") return false;
  const auto argument = [&](size_t at) { return at < arguments.size() ? arguments[at] : std::string(); };
  const std::string& kind = arguments[3];
  const std::string text = argument(kind == "models" ? 4 : 5);
  std::vector<std::string> words = kind == "models"   ? model_words()
                                   : kind == "use"    ? use_words(argument(4), text)
                                   : kind == "member" ? member_words(argument(4), text)
                                                      : std::vector<std::string>();
  std::ranges::sort(words);
  const auto same = std::ranges::unique(words);
  words.erase(same.begin(), same.end());
  for (const std::string& word : words)
    if (word.starts_with(text)) fmt::print("{}\n", word);
  return true;
}

}  // namespace millrace
