// The records of this folder's members; each is defined in the member's file.
#pragma once

#include "models/weight_source.h"

namespace millrace {

extern const WeightSourceMember kResidentWeights;
extern const WeightSourceMember kMappedWeights;
extern const WeightSourceMember kStreamWeights;
extern const WeightSourceMember kExpertWeights;
extern const WeightSourceMember kFlexgenWeights;
extern const WeightSourceMember kFlashWeights;
extern const WeightSourceMember kPowerInferWeights;

}  // namespace millrace
