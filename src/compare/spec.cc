#include "compare/spec.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {
namespace {

std::string_view trimmed_part(std::string_view text) {
  const size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

// Takes "key=value" if the part is one of that key; false if it is another.
Result<bool> take_part(std::string_view whole, std::string_view part, std::string_view key, std::string& value) {
  if (!part.starts_with(key) || part.substr(key.size(), 1) != "=") return false;
  if (!value.empty()) return Error::user(fmt::format("'{}': has two {}=", whole, key));
  value = part.substr(key.size() + 1);
  if (value.empty()) return Error::user(fmt::format("'{}': {}= is empty", whole, key));
  return true;
}

Result<bool> take_own_part(std::string_view whole, std::string_view part, CompareSpec& spec) {
  if (part == "plain") return true;
  MILLRACE_TRY(bool taken, take_part(whole, part, "model", spec.model));
  if (!taken) {
    MILLRACE_TRY(taken, take_part(whole, part, "engine", spec.engine));
  }
  if (!taken) {
    MILLRACE_TRY(taken, take_part(whole, part, "name", spec.name));
  }
  return taken;
}

}  // namespace

Result<CompareSpec> parse_compare_spec(std::string_view text) {
  constexpr std::string_view kBetween = " + ";
  if (trimmed_part(text).empty()) return Error::user("an empty configuration; write plain for the model as it is");
  CompareSpec spec;
  std::vector<std::string> choices;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.size(), text.find(kBetween, begin));
    const std::string_view part = trimmed_part(text.substr(begin, end - begin));
    begin = end + kBetween.size();
    if (part.empty()) return Error::user(fmt::format("'{}': a part before or behind a + is empty", text));
    spec.text += (spec.text.empty() ? "" : std::string(kBetween)) + std::string(part);
    MILLRACE_TRY(const bool own, take_own_part(text, part, spec));
    if (!own) choices.emplace_back(part);
  }
  if (!spec.engine.empty() && !choices.empty())
    return Error::user(
        fmt::format("'{}': {} is a technique of millrace; another engine takes its own arguments, as args=", text,
                    choices.front()));
  MILLRACE_TRY(spec.uses, parse_uses(choices, kCompareCommand));
  if (spec.name.empty()) spec.name = spec.text;
  return spec;
}

}  // namespace millrace
