// The members that builtin.cc registers.
#pragma once

#include "models/forward_switches.h"

namespace millrace {

extern const KernelSwitch kFusedKernels;
extern const KernelSwitch kByShape;
extern const KernelSwitch kPaddedExperts;
extern const KernelSwitch kGemv;
extern const KernelSwitch kNpu;
extern const KernelSwitch kSharedPrefix;
extern const KernelSwitch kUnifiedMax;
extern const KernelSwitch kFastDecode;

}  // namespace millrace
