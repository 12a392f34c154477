#include "compress/keep_rules.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

#include "models/convert/format_choice.h"

namespace millrace {
namespace {

constexpr std::string_view kWeightEnding = ".weight";

bool has_own_format(const OutputTensor& tensor) { return tensor.dims.size() > 1 && !special_matrix(tensor.name); }

// Why the rule changes nothing.
Error matches_nothing(const KeepRule& rule, const ConversionPlan& plan) {
  const bool named = std::ranges::any_of(plan.tensors, [&](const auto& one) { return rule.matches(one.name); });
  const bool tied = std::ranges::find(plan.tensors, "output.weight", &OutputTensor::name) == plan.tensors.end();
  return Error::user(
      fmt::format("--keep {}: {}; matrices have names like blk.0.attn_q.weight{}", rule.text,
                  named ? "matches no matrix, and vectors, routers and position tables stay as they are anyway"
                        : "matches no tensor of the output",
                  tied ? ", and the head is the tied token_embd.weight" : " and output.weight"));
}

}  // namespace

bool KeepRule::matches(const std::string& tensor) const {
  if (::fnmatch(pattern.c_str(), tensor.c_str(), 0) == 0) return true;
  return tensor.ends_with(kWeightEnding) &&
         ::fnmatch(pattern.c_str(), tensor.substr(0, tensor.size() - kWeightEnding.size()).c_str(), 0) == 0;
}

Result<std::vector<KeepRule>> read_keep_rules(const std::vector<std::string>& texts) {
  std::vector<KeepRule> rules;
  for (const std::string& text : texts) {
    const size_t equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0)
      return Error::user(fmt::format("--keep {}: must be PATTERN=FORMAT, such as 'output*=q8_0'", text));
    KeepRule rule{text, text.substr(0, equals), find_format(text.substr(equals + 1))};
    if (!rule.format || !can_store(*rule.format, true))
      return Error::user(fmt::format("--keep {}: '{}' must be a format that GGUF files can have, such as q8_0", text,
                                     text.substr(equals + 1)));
    rules.push_back(std::move(rule));
  }
  return rules;
}

Result<std::map<size_t, std::string>> apply_keep_rules(const std::vector<KeepRule>& rules, ConversionPlan& plan,
                                                       std::vector<std::string>& notes) {
  std::map<size_t, std::string> kept;
  for (const KeepRule& rule : rules) {
    bool used = false;
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
      OutputTensor& tensor = plan.tensors[i];
      if (!has_own_format(tensor) || !rule.matches(tensor.name)) continue;
      used = true;
      if (!kept.emplace(i, "--keep " + rule.text).second) continue;
      const Format* format = fitting_format(*rule.format, tensor.dims.back());
      tensor.format = format ? format : find_format("f16");
      if (tensor.format != rule.format)
        notes.push_back(fmt::format("{} is stored as {}: {} columns are not whole blocks of {} (block size {})",
                                    tensor.name, tensor.format->name, tensor.dims.back(), rule.format->name,
                                    rule.format->block_values));
    }
    if (!used) return matches_nothing(rule, plan);
  }
  return kept;
}

}  // namespace millrace
