// All weights are in memory all the time: passes ask nothing.
#include "models/weight_sources/records.h"

namespace millrace {

const WeightSourceMember kResidentWeights = {};

int64_t WeightPlaces::Layer::bytes() const {
  int64_t sum = 0;
  for (const WeightRange& range : own) sum += range.bytes;
  for (const auto& expert : experts)
    for (const WeightRange& range : expert) sum += range.bytes;
  return sum;
}

}  // namespace millrace
