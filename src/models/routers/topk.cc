// The model's own routing: the top k experts by probability (Shazeer et al., 2017), whose weights sum to 1 if the model
// says so. Ties go to the lower index.
#include "models/arch_spec.h"
#include "models/routers/builtin.h"

namespace millrace {
namespace {

// Weights in rank order.
void choose_topk(const MoeSpec& moe, const KernelTable& kernels, float* logits, int32_t* chosen, float* weights) {
  kernels.softmax(logits, moe.experts);
  float total = 0.0f;
  for (int64_t rank = 0; rank < moe.used; ++rank) {
    int64_t best = -1;
    for (int64_t e = 0; e < moe.experts; ++e)
      if (logits[e] >= 0.0f && (best < 0 || logits[e] > logits[best])) best = e;
    if (best < 0) best = 0;  // a router row of NaN: well-defined, but meaningless
    chosen[rank] = static_cast<int32_t>(best);
    weights[rank] = logits[best];
    total += logits[best];
    logits[best] = -1.0f;  // taken
  }
  if (!moe.normalize) return;
  for (int64_t rank = 0; rank < moe.used; ++rank) weights[rank] /= total;
}

}  // namespace

extern const Router kTopkRouter = {
    .name = "topk",
    .summary = "the model's own number of experts per token, the most probable ones",
    .paper = "Shazeer et al., 2017, Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer",
    .loss = Loss::lossless,
    .choose = choose_topk};

}  // namespace millrace
