// AttentionSwitches: alternatives of attend() (attention/full.h).
#pragma once

namespace millrace {

class AttentionPattern;

struct AttentionSwitches {
  bool unify = false;            // true: weights are relative to `unified_max` in all rows (AttentionArgs::unify)
  float unified_max = 0;         // the maximum score that is assumed
  bool shared_prefixes = false;  // true: keys that several streams share are read once (attention/shared_prefixes.h)
  const AttentionPattern* pattern = nullptr;  // for layers that see every key (attention/pattern.h); null: none
};

}  // namespace millrace
