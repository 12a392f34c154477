#include "program/variables.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {
namespace {

constexpr size_t kMaxNameBytes = 64;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view trimmed(std::string_view text, std::string_view blanks = " \t\r\n") {
  const size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

// Calls `plain` with the texts between the names and `name` with the names, in order. Errors: user.
Result<void> walk(std::string_view text, const std::function<void(std::string_view)>& plain,
                  const std::function<Result<void>(std::string_view)>& name) {
  for (size_t at = 0; at < text.size();) {
    const size_t brace = std::min(text.find_first_of("{}", at), text.size());
    plain(text.substr(at, brace - at));
    if (brace == text.size()) break;
    if (brace + 1 < text.size() && text[brace + 1] == text[brace]) {
      plain(text.substr(brace, 1));
      at = brace + 2;
      continue;
    }
    const size_t end = text[brace] == '{' ? text.find('}', brace) : std::string_view::npos;
    const auto found = end == std::string_view::npos ? std::string_view() : text.substr(brace + 1, end - brace - 1);
    if (!is_variable_name(found))
      return Error::user(fmt::format("'{}' at byte {} is not around the name of a variable; write '{}{}' for a brace",
                                     text[brace], brace, text[brace], text[brace]));
    MILLRACE_TRY_VOID(name(found));
    at = end + 1;
  }
  return {};
}

}  // namespace

bool is_variable_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && is_letter(name[0]) &&
         std::ranges::all_of(name, [](char c) { return is_letter(c) || is_digit(c); });
}

Result<std::vector<std::string>> names_in(std::string_view text) {
  std::vector<std::string> out;
  MILLRACE_TRY_VOID(walk(
      text, [](std::string_view) {},
      [&](std::string_view name) {
        out.emplace_back(name);
        return Result<void>();
      }));
  return out;
}

Result<std::string> with_values(std::string_view text, const ProgramVariables& variables, int64_t most) {
  std::string out;
  MILLRACE_TRY_VOID(walk(
      text, [&](std::string_view part) { out += part; },
      [&](std::string_view name) -> Result<void> {
        const auto found = variables.find(name);
        if (found == variables.end()) return Error::user(fmt::format("{{{}}}: has no value", name));
        if (std::ssize(out) + std::ssize(found->second) > most)
          return Error::user(fmt::format("the text has more than {} bytes", most));
        out += found->second;
        return {};
      }));
  return out;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) out.append(c == '{' || c == '}' ? 2 : 1, c);
  return out;
}

std::vector<std::string> lines_of(std::string_view text, bool numbered, size_t most) {
  std::vector<std::string> out;
  while (!text.empty() && out.size() < most) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
    if (numbered) {
      const size_t digits = std::min(line.find_first_not_of("0123456789"), line.size());
      if (digits == 0 || !line.substr(digits).starts_with(". ")) continue;
      line = trimmed(line.substr(digits + 2));
    }
    if (!line.empty()) out.emplace_back(line);
  }
  return out;
}

std::string voted_part(std::string_view text, std::string_view after) {
  if (after.empty()) return std::string(trimmed(text));
  const size_t at = text.rfind(after);
  if (at == std::string_view::npos) return "";
  text.remove_prefix(at + after.size());
  text = trimmed(text.substr(0, text.find('\n')));
  while (text.ends_with('.') || text.ends_with(' ')) text.remove_suffix(1);
  return std::string(text);
}

}  // namespace millrace
