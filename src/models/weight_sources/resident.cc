// All weights are in memory all the time: passes ask nothing.
#include "models/weight_sources/records.h"

namespace millrace {

const WeightSourceMember kResidentWeights = {};

}  // namespace millrace
