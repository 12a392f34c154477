// The name of this machine's processor, for reports of measurements.
#pragma once

#include <string>

namespace millrace {

// Returns the first "model name" in /proc/cpuinfo; "unknown" if there is none.
std::string processor_name();

}  // namespace millrace
