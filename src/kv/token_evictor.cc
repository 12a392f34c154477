#include "kv/token_evictor.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/choose.h"
#include "base/enum_table.h"

namespace millrace {
namespace {

constexpr EnumNames<EvictionScope> kScopes("stream", "layer", "head");
constexpr EnumNames<EvictionPositions> kPositions("text", "cache");

}  // namespace

Result<std::shared_ptr<const EvictionRule>> make_eviction_rule(std::string_view text) {
  if (text.empty() || text == "none") return std::shared_ptr<const EvictionRule>();
  MILLRACE_TRY(const auto chosen, choose_member("evictor", token_evictors(), text));
  const std::string& prompt = chosen.options.text("prompt");
  if (prompt != "whole" && prompt != "evicted")
    return Error::user(fmt::format("{}: prompt: must be whole or evicted, got '{}'", chosen.label, prompt));
  const std::string& scope = chosen.options.text("scope");
  const auto found = kScopes.find(scope);
  if (!found)
    return Error::user(fmt::format("{}: scope: must be stream, layer or head, got '{}'", chosen.label, scope));
  const std::string& positions = chosen.options.text("positions");
  const auto counted = kPositions.find(positions);
  if (!counted)
    return Error::user(fmt::format("{}: positions: must be text or cache, got '{}'", chosen.label, positions));
  if (*counted == EvictionPositions::cache && *found != EvictionScope::stream)
    return Error::user(
        fmt::format("{}: positions: cache needs scope=stream: with scope={} each head has other tokens at a position",
                    chosen.label, scope));
  auto rule = std::make_shared<EvictionRule>();
  MILLRACE_TRY(rule->evictor, chosen.member(chosen.options));
  rule->slack = chosen.options.integer("slack");
  rule->whole_prompt = prompt == "whole";
  rule->scope = *found;
  rule->positions = *counted;
  rule->text = std::string(text);
  return std::shared_ptr<const EvictionRule>(std::move(rule));
}

int64_t kv_demand(const EvictionRule* rule, int64_t prompt, int64_t total) {
  if (!rule) return total;
  const int64_t most = rule->whole_prompt ? std::max(rule->most_stored(), prompt) : rule->most_stored();
  return std::min(most, total);
}

int64_t stored_tokens(const EvictionRule* rule, int64_t prompt, int64_t computed) {
  if (!rule) return computed;
  const int64_t first = rule->whole_prompt ? std::max(rule->most_stored(), prompt) : rule->most_stored();
  return computed < first ? computed : rule->evictor->budget() + (computed - first) % rule->slack;
}

}  // namespace millrace
