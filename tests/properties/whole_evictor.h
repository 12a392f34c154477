// Evictors with room for everything, for tests that go through all members of the registry.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "kv/token_evictor.h"

namespace millrace::testing {

// The member with room for `tokens` tokens and no more, as options.
inline std::string whole_evictor(const TechniqueInfo& member, int64_t tokens) {
  const auto has = [&](const char* name) {
    return std::ranges::find(member.options, name, &OptionSpec::name) != member.options.end();
  };
  if (has("budget")) return fmt::format("{}:budget={}{}", member.name, tokens, has("beta") ? ",beta=1" : "");
  if (has("keep")) return fmt::format("{}:keep={},final={}", member.name, tokens, tokens);
  return fmt::format("{}:window={}", member.name, tokens);
}

}  // namespace millrace::testing
