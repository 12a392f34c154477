#include "models/weight_units/unit_plan.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

#include "base/memory_accounts.h"

namespace millrace {
namespace {

struct PlaceRule {
  std::string pattern;
  bool memory = false;
};

Result<std::vector<PlaceRule>> parse_rules(std::string_view text) {
  std::vector<PlaceRule> rules;
  while (!text.empty()) {
    const size_t end = std::min(text.find(';'), text.size());
    const std::string_view rule = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t equals = rule.rfind('=');
    const std::string_view where = equals == rule.npos ? "" : rule.substr(equals + 1);
    if (equals == 0 || (where != "memory" && where != "disk"))
      return Error::user(fmt::format("place: expected PATTERN=memory or PATTERN=disk, got {}", rule));
    rules.push_back({std::string(rule.substr(0, equals)), where == "memory"});
  }
  return rules;
}

}  // namespace

Result<int64_t> memory_option(const OptionValues& options, int64_t limit) {
  const std::string& text = options.text("memory");
  if (text.empty()) return limit;
  auto bytes = parse_bytes(text);
  if (!bytes.ok()) return Error::user("memory: " + bytes.error().message);
  return std::min(limit, *bytes);
}

Result<void> apply_place_rules(const OptionValues& options, WeightPlaces& places) {
  MILLRACE_TRY(const auto rules, parse_rules(options.text("place")));
  std::vector<bool> used(rules.size(), false);
  const auto keep = [&](std::vector<WeightRange>& ranges, bool expert) {
    const auto stays = [&](const WeightRange& range) {
      bool memory = false;
      for (size_t i = 0; i < rules.size(); ++i) {
        const std::string& pattern = rules[i].pattern;
        const bool match = pattern == "experts" ? expert : ::fnmatch(pattern.c_str(), range.name.c_str(), 0) == 0;
        if (match) memory = rules[i].memory;
        if (match) used[i] = true;
      }
      return memory;
    };
    std::vector<WeightRange> left;
    for (WeightRange& range : ranges) (stays(range) ? places.others : left).push_back(std::move(range));
    ranges = std::move(left);
  };
  for (WeightPlaces::Layer& layer : places.layers) {
    keep(layer.own, false);
    for (auto& expert : layer.experts) keep(expert, true);
  }
  const auto unused = std::ranges::find(used, false);
  if (unused == used.end()) return {};
  return Error::user(
      fmt::format("place: no tensor of a layer matches {}; see the names with millrace inspect --tensors",
                  rules[static_cast<size_t>(unused - used.begin())].pattern));
}

UnitStore::Options store_options(const OptionValues& options) {
  return {.depth = options.integer("depth"), .timeout = options.number("timeout"), .lock = options.boolean("lock")};
}

}  // namespace millrace
