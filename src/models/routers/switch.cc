// The Switch Transformer's routing: one expert per token, the most probable one, whose output is multiplied by its
// probability. In a model trained with more experts per token it reads fewer weights and changes answers.
#include "models/arch_spec.h"
#include "models/routers/builtin.h"

namespace millrace {
namespace {

// The expert's own score weighs it; a model's way of scoring and selecting stays.
void use_one(MoeSpec& moe) {
  moe.used = 1;
  moe.normalize = false;
}

void choose_first(const MoeSpec& moe, const KernelTable& kernels, float* logits, int32_t* chosen, float* weights) {
  kTopkRouter.choose(moe, kernels, logits, chosen, weights);
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
