// Experts in two precisions (EdgeMoE: Yi et al., 2023, "EdgeMoE: Empowering Sparse Large Language Models on Mobile
// Devices"; HOBBIT: Tang et al., 2024, "HOBBIT: A Mixed Precision Expert Offloading System for Fast MoE Inference"):
// the experts that a text used most are packed as the file stores them, and the others, the cold ones, in fewer bits.
//
// HOBBIT takes an expert's copy of fewer bits where the cache lacks the expert, so that an answer depends on what
// earlier requests left in the cache. Here a profile decides, which is the same for every request: EdgeMoE's choice. So
// every expert has one precision, and a request has the same bits in any batch and with any cache.
#pragma once

#include <span>

#include "base/options.h"
#include "models/weight_source.h"

namespace millrace {

// WeightSourceMember::cold_experts, by the options `cold`, `hot` and `profile`.
Result<ColdExperts> choose_cold_experts(std::span<const size_t> experts, const OptionValues& options);

// The policy of a source of places with these cold experts; empty if there are none.
WeightPolicy cold_policy(const WeightPlaces& places, const OptionValues& options);

}  // namespace millrace
