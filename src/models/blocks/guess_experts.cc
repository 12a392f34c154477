// Guesses which experts the next layer will choose, by its router on this layer's router input, which differs little
// (Eliseev and Mazur, 2023, "Fast Inference of Mixture-of-Experts Language Models with Offloading"). The weight source
// reads them ahead; no result depends on them.
#include <algorithm>

#include "models/blocks/blocks.h"
#include "models/router.h"
#include "models/weight_source.h"

namespace millrace {
namespace {

constexpr int64_t kTokens = 16;  // of a batch: those of a longer one choose nearly all experts

}  // namespace

void guess_experts(const ArchSpec& spec, int64_t layer, const ActivationRows& rows, ForwardContext& context) {
  auto& guesses = context.expert_guesses;
  guesses.clear();
  const int64_t each = context.source ? context.source->router_guesses() : 0;
  if (each == 0 || !context.next_layer) return;
  const Weight& router = context.next_layer->router;
  const LayerSpec& next = spec.layers[static_cast<size_t>(layer) + 1];
  if (!next.moe || !router.present() || is_factored(router) || changes_product(router) || !rows.data ||
      router.format->activation != rows.kind)
    return;
  const MoeSpec& moe = next.experts;
  ActivationRows some = rows;
  some.tokens = std::min(rows.tokens, kTokens);
  context.guess_logits.resize(static_cast<size_t>(some.tokens * moe.experts));
  float* const logits = context.guess_logits.data();
  linear(context.pool(), router, some, logits, moe.experts);
  std::vector<int32_t> chosen(static_cast<size_t>(moe.used));
  std::vector<float> weights(chosen.size());
  const std::vector<float>& bias = context.next_layer->router_bias;
  for (int64_t t = 0; t < some.tokens; ++t) {
    float* const row = logits + t * moe.experts;
    for (size_t e = 0; e < bias.size(); ++e) row[e] += bias[e];
    moe.router->choose(moe, context.kernels(), row, chosen.data(), weights.data());
    const auto count = std::min<int64_t>(each, moe.used);
    guesses.insert(guesses.end(), chosen.begin(), chosen.begin() + count);
  }
  std::ranges::sort(guesses);
  guesses.erase(std::ranges::unique(guesses).begin(), guesses.end());
}

}  // namespace millrace
