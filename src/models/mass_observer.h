// MassObserver: the attention mass of some spans of a batch in one layer (attention/mass.h), as a ForwardObserver.
#pragma once

#include "attention/mass.h"
#include "models/forward_hooks.h"

namespace millrace {

class MassObserver final : public ForwardObserver {
 public:
  AttentionMass mass;  // request for the next pass, and its result

  void queries(const AttentionInput& in) override {
    if (in.layer.layer != mass.layer || mass.spans.empty()) return;
    observe_mass(in.batch, in.layer, in.kernels, in.kv, in.q, mass);
  }
};

}  // namespace millrace
