// AttentionPattern: which earlier keys a query sees. Each model layer names its pattern.
#pragma once

#include <string_view>

#include "base/registry.h"

namespace millrace {

struct AttentionPattern {
  std::string_view name;
  std::string_view summary;
  std::string_view paper;
};

const Registry<const AttentionPattern*>& attention_patterns();

}  // namespace millrace
