// ExpertProfile: how often each expert of a mixture ran while the model read a text. `millrace offload profile` writes
// it; weights=experts reads it to decide which experts are cold. The file is JSON: {"version", "tokens", "uses"}, the
// uses as one list for each layer, in the order of its experts, and empty for a layer without experts. Frozen.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace millrace {

struct ExpertProfile {
  int64_t tokens = 0;                      // tokens of the text
  std::vector<std::vector<int64_t>> uses;  // tokens that an expert ran for, by layer and expert
};

// Errors: user (the file cannot be read, or is no profile).
Result<ExpertProfile> read_expert_profile(const std::string& path);
// Errors: resource (names the path).
Result<void> write_expert_profile(const std::string& path, const ExpertProfile& profile);

// Returns for each of a layer's experts whether it is cold: not among the `hot` share of them [0, 1] with the most
// uses, rounded to whole experts. If experts have equal uses, the first ones are hot.
std::vector<bool> cold_by_uses(std::span<const int64_t> uses, double hot);

// Returns the share of the uses that fall on cold experts, from 0 to 1.
double cold_share(const ExpertProfile& profile, double hot);

}  // namespace millrace
