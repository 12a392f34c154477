// The families of techniques that an engine can use. A new family is one line in families.cc; its members are those of
// its registry.
#pragma once

#include <string_view>
#include <vector>

#include "base/registry.h"

namespace millrace {

// Every member of every family, in the order in which users see them.
std::vector<TechniqueInfo> all_techniques();

}  // namespace millrace
