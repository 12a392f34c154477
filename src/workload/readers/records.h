// The trace formats; included only by builtin.cc.
#pragma once

#include "workload/trace_format.h"

namespace millrace {

extern const TraceFormat kMooncake, kAzure, kVidur, kBurstGpt, kTokenIds, kAgent, kAibrix, kOtel;

}  // namespace millrace
