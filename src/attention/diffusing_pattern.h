// DiffusingPattern: an attention pattern whose weights are applied several times in one layer. A query thereby receives
// values of keys that are several hops away in the pattern's graph (attention/hop_values.h).
#pragma once

#include "attention/pattern.h"

namespace millrace {

inline constexpr int64_t kMaxHops = 8;
inline constexpr int64_t kMaxHopDim = 1024;  // maximum number of values in a head

class DiffusingPattern : public AttentionPattern {
 public:
  virtual int64_t hops() const = 0;  // at least 1
  virtual float own() const = 0;     // share of a token's own value in the value of the next hop
};

// Returns null if the pattern does not diffuse or is null.
inline const DiffusingPattern* diffusing_pattern(const AttentionPattern* pattern) {
  const auto* diffusing = dynamic_cast<const DiffusingPattern*>(pattern);
  return diffusing && diffusing->hops() > 1 ? diffusing : nullptr;
}

}  // namespace millrace
