#include "kv/token_evictor.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {

Result<std::shared_ptr<const EvictionRule>> make_eviction_rule(std::string_view text) {
  if (text.empty() || text == "none") return std::shared_ptr<const EvictionRule>();
  const auto colon = text.find(':');
  const auto* entry = token_evictors().find(text.substr(0, colon));
  if (!entry)
    return Error::user(
        fmt::format("evictor: unknown '{}'; available: {}", text.substr(0, colon), token_evictors().names()));
  auto options =
      parse_options(colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1), entry->info.options);
  if (!options.ok()) return Error::user(fmt::format("evictor {}: {}", entry->info.name, options.error().message));
  const std::string& prompt = options->text("prompt");
  if (prompt != "whole" && prompt != "evicted")
    return Error::user(fmt::format("evictor {}: prompt: must be whole or evicted, got '{}'", entry->info.name, prompt));
  auto rule = std::make_shared<EvictionRule>();
  MILLRACE_TRY(rule->evictor, entry->member(*options));
  rule->slack = options->integer("slack");
  rule->whole_prompt = prompt == "whole";
  rule->text = std::string(text);
  return std::shared_ptr<const EvictionRule>(std::move(rule));
}

int64_t kv_demand(const EvictionRule* rule, int64_t prompt, int64_t total) {
  if (!rule) return total;
  const int64_t most = rule->whole_prompt ? std::max(rule->most_stored(), prompt) : rule->most_stored();
  return std::min(most, total);
}

}  // namespace millrace
