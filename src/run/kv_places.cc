#include "run/kv_places.h"

#include <string>
#include <utility>
#include <vector>

namespace millrace {
namespace {

// The member `name` of `family` with these values: paths may hold any character, so they are not written into a text
// first.
template <typename Member>
Result<ChosenMember<Member>> member_with(const std::string& family, const Registry<Member>& registry, const char* name,
                                         const std::vector<std::pair<std::string, std::string>>& given) {
  const auto* entry = registry.find(name);
  MILLRACE_TRY(OptionValues values, options_of(given, entry->info.options));
  return ChosenMember<Member>{entry->member, std::move(values), family + " " + name};
}

}  // namespace

Result<ChosenTier> chosen_tier(const EngineOptions& options) {
  if (options.kv_tier.empty())
    return member_with("KV tier", kv_tiers(), "memory", {{"tokens", std::to_string(options.swap_tokens)}});
  if (options.swap_tokens > 0)
    return Error::user("KV tier: swap tokens are short for memory:tokens=...; give only one of them");
  return choose_member("KV tier", kv_tiers(), options.kv_tier);
}

Result<ChosenStore> chosen_store(const EngineOptions& options) {
  if (options.kv_store.empty())
    return member_with(
        "KV store", kv_stores(), "ssd",
        {{"path", options.kv_ssd}, {"size", std::to_string(options.kv_ssd_size)}, {"order", options.kv_ssd_order}});
  if (!options.kv_ssd.empty())
    return Error::user("KV store: a file alone is short for ssd:path=...; give only one of them");
  return choose_member("KV store", kv_stores(), options.kv_store);
}

}  // namespace millrace
