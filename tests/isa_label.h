// The name of a set of features within a test's name, where only letters, digits and underscores may stand.
#pragma once

#include <algorithm>
#include <string>

#include "base/cpu.h"

namespace millrace::testing {

inline std::string isa_label(Isa isa) {
  std::string name = isa_name(isa);
  std::replace(name.begin(), name.end(), '-', '_');
  std::replace(name.begin(), name.end(), '+', '_');
  return name;
}

}  // namespace millrace::testing
