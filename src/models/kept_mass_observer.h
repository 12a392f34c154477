// KeptMassObserver: measures the attention that a pattern keeps (attention/kept_mass.h), as a ForwardObserver of a
// runner's passes.
#pragma once

#include "attention/kept_mass.h"
#include "models/model_runner.h"

namespace millrace {

class KeptMassObserver final : public ForwardObserver {
 public:
  explicit KeptMassObserver(ModelRunner& runner) : runner_(runner) { runner_.hooks().add(*this); }
  ~KeptMassObserver() override { runner_.hooks().remove(*this); }
  KeptMassObserver(const KeptMassObserver&) = delete;
  KeptMassObserver& operator=(const KeptMassObserver&) = delete;

  const KeptMass& kept() const { return kept_; }
  void queries(const AttentionInput& in) override {
    observe_kept_mass(in.batch, in.layer, in.kernels, in.kv, in.q, runner_.limits().context, {{&kept_, 1}}, in.tiles);
  }

 private:
  ModelRunner& runner_;
  KeptMass kept_;
};

}  // namespace millrace
