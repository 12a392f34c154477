// The option schema of a technique: one declaration for the command line, the config file, the HTTP API and the docs.
// Users write a technique as `NAME[:key=value,key=value]`.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace millrace {

struct OptionSpec {
  enum class Type { integer, number, boolean, text };
  std::string name;
  Type type = Type::number;
  std::string default_value;  // as typed on the command line
  double min = -1e300;        // bounds of integer and number, inclusive
  double max = 1e300;
  std::string help;  // one line, with the unit
};

// Values checked against a schema; missing values have their defaults.
class OptionValues {
 public:
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  bool boolean(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  // Returns true if the option was specified, false if it has its default.
  bool given(std::string_view name) const { return given_.contains(name); }

 private:
  friend Result<OptionValues> parse_options(std::string_view, const std::vector<OptionSpec>&);
  friend Result<OptionValues> options_of(std::span<const std::pair<std::string, std::string>>,
                                         const std::vector<OptionSpec>&);
  std::map<std::string, std::string, std::less<>> values_;
  std::set<std::string, std::less<>> given_;
};

// `text`: "key=value,key=value", or empty. The value of a text option may contain commas: a part after a comma that
// does not begin with `name=` belongs to the value before it. A backslash before a comma or a backslash makes it a part
// of the value. Errors: user (unknown or repeated key, wrong type, out of range).
Result<OptionValues> parse_options(std::string_view text, const std::vector<OptionSpec>& schema);

// Returns `value` as parse_options() reads it back from a text. It may have any characters.
std::string escape_option(std::string_view value);

// Variant of parse_options() for separate names and values; values may contain any character.
Result<OptionValues> options_of(std::span<const std::pair<std::string, std::string>> given,
                                const std::vector<OptionSpec>& schema);

}  // namespace millrace
