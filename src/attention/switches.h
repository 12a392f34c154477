// AttentionSwitches: alternatives of attend() (attention/full.h).
#pragma once

namespace millrace {

class AttentionPattern;

struct AttentionSwitches {
  bool unify = false;            // weights relative to one maximum for all rows (AttentionArgs::unify) ...
  float unified_max = 0;         // ... this one, of scores
  bool shared_prefixes = false;  // keys that several streams share are read once (attention/shared_prefixes.h)
  const AttentionPattern* pattern = nullptr;  // for layers that see every key (attention/pattern.h); null: none
};

}  // namespace millrace
