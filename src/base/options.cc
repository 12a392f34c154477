#include "base/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace millrace {
namespace {

const char* type_name(OptionSpec::Type type) {
  switch (type) {
    case OptionSpec::Type::integer: return "an integer";
    case OptionSpec::Type::number: return "a number";
    case OptionSpec::Type::boolean: return "true or false";
    case OptionSpec::Type::text: return "text";
  }
  return "?";
}

bool parse_number(const std::string& text, double* out) {
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return ec == std::errc() && end == text.data() + text.size() && std::isfinite(*out);
}

Result<void> check_value(const OptionSpec& spec, const std::string& value) {
  if (spec.type == OptionSpec::Type::text) return {};
  bool valid = false;
  double number = 0;
  if (spec.type == OptionSpec::Type::boolean) {
    valid = value == "true" || value == "false" || value == "1" || value == "0";
    if (valid) return {};
  } else {
    valid = parse_number(value, &number);
    // "1.0" for a count is a share of someone who knows shares; as a count it would mean one.
    const bool fraction = value.find('.') != std::string::npos || number != std::floor(number);
    if (spec.type == OptionSpec::Type::integer) valid = valid && !fraction;
  }
  if (!valid) {
    return Error::user(fmt::format("{}: expected {}, got '{}'", spec.name, type_name(spec.type), value));
  }
  if (number < spec.min || number > spec.max) {
    return Error::user(fmt::format("{}: must be between {} and {}, got {}", spec.name, spec.min, spec.max, value));
  }
  return {};
}

bool is_name(std::string_view key) {
  return !key.empty() && std::ranges::all_of(key, [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
}

constexpr std::string_view kEscaped = ",\\";  // characters that a backslash may stand before

// Returns the position of the first comma without a backslash before it; npos: there is none.
size_t find_comma(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ',') return i;
    if (text[i] == '\\' && i + 1 < text.size() && kEscaped.find(text[i + 1]) != std::string_view::npos) ++i;
  }
  return std::string_view::npos;
}

std::string unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size() && kEscaped.find(text[i + 1]) != std::string_view::npos) ++i;
    out += text[i];
  }
  return out;
}

}  // namespace

std::string escape_option(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (kEscaped.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

Result<OptionValues> parse_options(std::string_view text, const std::vector<OptionSpec>& schema) {
  OptionValues out;
  for (const auto& spec : schema) out.values_[spec.name] = spec.default_value;
  std::string* list = nullptr;  // the text value that the next item may belong to
  while (!text.empty()) {
    auto comma = find_comma(text);
    auto item = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    auto equals = item.find('=');
    auto key = item.substr(0, equals);
    auto spec = std::ranges::find(schema, key, &OptionSpec::name);
    if (spec == schema.end() && list && !(equals != std::string_view::npos && is_name(key))) {
      list->append(",").append(unescape(item));
      continue;
    }
    if (spec == schema.end()) {
      std::string known;
      for (const auto& one : schema) known += (known.empty() ? "" : ", ") + one.name;
      return Error::user(fmt::format("{}: no such option; known: {}", key, known.empty() ? "none" : known));
    }
    if (!out.given_.emplace(key).second) return Error::user(fmt::format("{}: is given twice", key));
    std::string& value = out.values_[spec->name];
    value = equals == std::string_view::npos ? "true" : unescape(item.substr(equals + 1));
    list = spec->type == OptionSpec::Type::text && equals != std::string_view::npos ? &value : nullptr;
  }
  for (const auto& spec : schema) MILLRACE_TRY_VOID(check_value(spec, out.values_[spec.name]));
  return out;
}

Result<OptionValues> options_of(std::span<const std::pair<std::string, std::string>> given,
                                const std::vector<OptionSpec>& schema) {
  MILLRACE_TRY(OptionValues out, parse_options("", schema));
  for (const auto& [name, value] : given) {
    const auto spec = std::ranges::find(schema, name, &OptionSpec::name);
    if (spec == schema.end()) return Error::user(name + ": no such option");
    MILLRACE_TRY_VOID(check_value(*spec, value));
    out.values_[name] = value;
    out.given_.insert(name);
  }
  return out;
}

const std::string& OptionValues::text(std::string_view name) const {
  static const std::string empty;
  auto found = values_.find(name);
  return found == values_.end() ? empty : found->second;
}

double OptionValues::number(std::string_view name) const {
  double value = 0;
  parse_number(text(name), &value);
  return value;
}

int64_t OptionValues::integer(std::string_view name) const { return static_cast<int64_t>(number(name)); }

bool OptionValues::boolean(std::string_view name) const { return text(name) == "true" || text(name) == "1"; }

}  // namespace millrace
