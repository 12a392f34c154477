// The Switch Transformer's routing: one expert per token, the most probable one, whose output is multiplied by its
// probability. In a model trained with more experts per token it reads fewer weights and changes answers.
#include <algorithm>

#include "models/arch_spec.h"
#include "models/routers/builtin.h"

namespace millrace {
namespace {

void use_one(MoeSpec& moe) { moe.used = 1; }

void choose_first(const MoeSpec& moe, const KernelTable& kernels, float* logits, int32_t* chosen, float* weights) {
  kernels.softmax(logits, moe.experts);
  const float* best = std::max_element(logits, logits + moe.experts);  // ties: the lower index
  *chosen = static_cast<int32_t>(best - logits);
  *weights = *best;
}

}  // namespace

extern const Router kSwitchRouter = {
    .name = "switch",
    .summary = "one expert per token, its output weighted by its probability",
    .paper =
        "Fedus et al., 2021, Switch Transformers: Scaling to Trillion Parameter Models with Simple and Efficient "
        "Sparsity",
    .configure = use_one,
    .choose = choose_first};

}  // namespace millrace
