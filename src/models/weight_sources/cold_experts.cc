#include "models/weight_sources/cold_experts.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "base/memory_accounts.h"
#include "formats/format.h"
#include "offload/expert_profile.h"

namespace millrace {

Result<ColdExperts> choose_cold_experts(std::span<const size_t> experts, const OptionValues& options) {
  const std::string &name = options.text("cold"), &path = options.text("profile");
  const double hot = options.number("hot");
  if (name.empty()) {
    if (path.empty()) return ColdExperts();
    return Error::user("profile: says which experts are cold; give their format, such as cold=q4_0");
  }
  ColdExperts out{.format = find_format(name)};
  if (!out.format)
    return Error::user(fmt::format("cold: unknown format '{}'; see millrace techniques --family format", name));
  ExpertProfile profile;
  if (hot > 0 && hot < 1) {
    if (path.empty())
      return Error::user(
          "cold: give profile=FILE, which says how often each expert is used, from millrace offload profile; or hot=0, "
          "with which all experts are cold");
    MILLRACE_TRY(profile, read_expert_profile(path));
    if (profile.uses.size() != experts.size())
      return Error::user(fmt::format("profile: {} is of a model with {} layers, this one has {}", path,
                                     profile.uses.size(), experts.size()));
  }
  for (size_t layer = 0; layer < experts.size(); ++layer) {
    if (profile.uses.empty()) {
      out.cold.emplace_back(experts[layer], hot < 1);
      continue;
    }
    const std::vector<int64_t>& uses = profile.uses[layer];
    if (uses.size() != experts[layer])
      return Error::user(fmt::format("profile: {} is of a model with {} experts in layer {}, this one has {}", path,
                                     uses.size(), layer, experts[layer]));
    out.cold.push_back(cold_by_uses(uses, hot));
  }
  return out;
}

WeightPolicy cold_policy(const WeightPlaces& places, const OptionValues& options) {
  int64_t experts = 0, cold = 0, bytes = 0;
  const std::string& format = options.text("cold");
  uint64_t hash = XXH3_64bits(format.data(), format.size());
  for (const WeightPlaces::Layer& layer : places.layers) {
    for (size_t e = 0; e < layer.experts.size(); ++e) {
      const bool is_cold = !layer.cold.empty() && layer.cold[e];
      ++experts;
      cold += is_cold;
      bytes += WeightPlaces::bytes_of(layer.experts[e]);
      hash = XXH3_64bits_withSeed(&is_cold, sizeof is_cold, hash);
    }
  }
  if (cold == 0) return {};
  const std::string& path = options.text("profile");
  return {.text = fmt::format("{} of {} experts are cold, in {} (lossy); all experts have {}", cold, experts, format,
                              format_bytes(bytes)),
          .lossy = fmt::format("experts:cold={},hot={}{}", format, options.number("hot"),
                               path.empty() ? "" : ",profile=" + path),
          .lossy_hash = hash};
}

}  // namespace millrace
