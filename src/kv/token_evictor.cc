#include "kv/token_evictor.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/choose.h"
#include "base/enum_table.h"

namespace millrace {
namespace {

constexpr EnumNames<EvictionScope> kScopes("stream", "layer", "head");
constexpr EnumNames<EvictionPositions> kPositions("text", "cache");

// Options of evictors whose layers have the same budget.
Result<void> read_scope(const ChosenMember<TokenEvictorFactory>& chosen, EvictionRule& rule) {
  const std::string& scope = chosen.options.text("scope");
  const auto found = kScopes.find(scope);
  if (!found)
    return Error::user(fmt::format("{}: scope: must be stream, layer or head, got '{}'", chosen.label, scope));
  const std::string& positions = chosen.options.text("positions");
  const auto counted = kPositions.find(positions);
  if (!counted)
    return Error::user(fmt::format("{}: positions: must be text or cache, got '{}'", chosen.label, positions));
  rule.scope = *found;
  rule.positions = *counted;
  if (rule.positions != EvictionPositions::cache) return {};
  if (!chosen.options.given("scope")) rule.scope = EvictionScope::stream;  // whatever the member's default
  if (rule.scope != EvictionScope::stream)
    return Error::user(
        fmt::format("{}: positions: cache needs scope=stream: with scope={} each head has other tokens at a position",
                    chosen.label, scope));
  return {};
}

// Tokens that it may store before the first decision, whatever the prompt.
int64_t least_stored(const EvictionRule& rule, int64_t layers) {
  int64_t least = rule.most_stored(0, layers);
  for (int64_t layer = 1; layer < layers; ++layer) least = std::min(least, rule.most_stored(layer, layers));
  return least;
}

int64_t mean_up(int64_t sum, int64_t count) { return (sum + count - 1) / count; }

}  // namespace

Result<std::shared_ptr<const EvictionRule>> make_eviction_rule(std::string_view text) {
  if (text.empty() || text == "none") return std::shared_ptr<const EvictionRule>();
  MILLRACE_TRY(const auto chosen, choose_member("evictor", token_evictors(), text));
  const std::string& prompt = chosen.options.text("prompt");
  if (prompt != "whole" && prompt != "evicted")
    return Error::user(fmt::format("{}: prompt: must be whole or evicted, got '{}'", chosen.label, prompt));
  auto rule = std::make_shared<EvictionRule>();
  MILLRACE_TRY(rule->evictor, chosen.member(chosen.options));
  rule->slack = chosen.options.integer("slack");
  rule->whole_prompt = prompt == "whole";
  rule->scope = EvictionScope::layer;
  if (!rule->by_layer()) MILLRACE_TRY_VOID(read_scope(chosen, *rule));
  for (const char* option : {"scope", "positions"})
    if (rule->by_layer() && chosen.options.given(option))
      return Error::user(
          fmt::format("{}: {}: {} with budgets of their own choose for themselves, by positions in the text; omit it",
                      chosen.label, option, rule->by_head() ? "heads" : "layers"));
  rule->text = std::string(text);
  return std::shared_ptr<const EvictionRule>(std::move(rule));
}

int64_t EvictionRule::whole_tokens(int64_t prompt) const {
  if (whole_prompt) return prompt;
  return joined > 0 ? std::min(prompt, joined + slack) : 0;
}

int64_t EvictionRule::first_decision(int64_t prompt, int64_t layers) const {
  // What gates have ended is dropped as soon as there may be enough of it.
  const int64_t full = evictor->gated() ? slack : least_stored(*this, layers);
  return std::max(full, whole_tokens(prompt));
}

int64_t layer_demand(const EvictionRule* rule, int64_t prompt, int64_t total, int64_t layer, int64_t layers) {
  if (!rule) return total;
  const int64_t most = rule->most_stored(layer, layers);
  return std::min(std::max(most, rule->whole_tokens(prompt)), total);
}

int64_t kv_demand(const EvictionRule* rule, int64_t prompt, int64_t total, int64_t layers) {
  if (!rule || !rule->by_layer()) return layer_demand(rule, prompt, total, 0, 1);
  int64_t sum = 0;
  for (int64_t layer = 0; layer < layers; ++layer) sum += layer_demand(rule, prompt, total, layer, layers);
  return mean_up(sum, layers);
}

int64_t most_demand(const EvictionRule* rule, int64_t prompt, int64_t total, int64_t layers) {
  int64_t most = 0;
  for (int64_t layer = 0; layer < layers; ++layer)
    most = std::max(most, layer_demand(rule, prompt, total, layer, layers));
  return most;
}

int64_t blocks_demand(const EvictionRule* rule, int64_t prompt, int64_t total, int64_t layers, int64_t block_tokens) {
  int64_t sum = 0;
  for (int64_t layer = 0; layer < layers; ++layer)
    sum += mean_up(layer_demand(rule, prompt, total, layer, layers), block_tokens);
  return sum;
}

int64_t stored_tokens(const EvictionRule* rule, int64_t prompt, int64_t computed, int64_t layers) {
  if (!rule) return computed;
  if (!rule->by_layer()) layers = 1;
  const int64_t first = rule->first_decision(prompt, layers);
  if (computed < first) return computed;
  const int64_t since = (computed - first) % rule->slack;
  int64_t sum = 0;
  for (int64_t layer = 0; layer < layers; ++layer)
    sum += std::min(rule->evictor->budget_of(layer, layers), computed - since) + since;
  return mean_up(sum, layers);
}

}  // namespace millrace
