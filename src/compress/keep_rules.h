// Rules PATTERN=FORMAT of `compress --keep`: they fix the format of output tensors, and override the passes. PATTERN is
// a glob (*, ? and [...]) over tensor names, with or without the ending ".weight". The first rule that matches a tensor
// counts. Pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/convert/conversion.h"

namespace millrace {

struct KeepRule {
  std::string text, pattern;
  const Format* format = nullptr;

  bool matches(const std::string& tensor) const;
};

// Errors: user (no "=", no pattern, an unknown format, or a format that GGUF files cannot have).
Result<std::vector<KeepRule>> read_keep_rules(const std::vector<std::string>& texts);

// Sets the formats of the plan's tensors. If the rows of a tensor do not fit a format, it is assigned the replacement
// that `millrace convert` chooses, and a note is added. Vectors, routers and position tables are not changed. Returns,
// by index in the plan, the option "--keep RULE" of each tensor whose format is fixed. Errors: user (a rule matches no
// matrix).
Result<std::map<size_t, std::string>> apply_keep_rules(const std::vector<KeepRule>& rules, ConversionPlan& plan,
                                                       std::vector<std::string>& notes);

}  // namespace millrace
