// The model's own routing: the top k experts by score (Shazeer et al., 2017), whose weights sum to 1 if the model says
// so. Ties go to the lower index. DeepSeek's models (DeepSeek-AI, 2024, DeepSeek-V2 and DeepSeek-V3) take them from the
// best groups of experts only, may score by a sigmoid, add a bias to the scores by which experts are selected, and
// multiply the weights by a factor.
#include <cmath>

#include "models/arch_spec.h"
#include "models/routers/builtin.h"

namespace millrace {
namespace {

constexpr float kTaken = -1.0f;  // scores are at least 0

// What experts are selected by. A NaN is never above another score; best_expert() skips what is taken.
float selection(const MoeSpec& moe, const float* scores, int64_t expert) {
  return moe.selection_bias.empty() ? scores[expert] : scores[expert] + moe.selection_bias[static_cast<size_t>(expert)];
}

// The sum of the best experts' scores of a group; 1 or 2 of them.
float group_score(const MoeSpec& moe, const float* scores, int64_t group) {
  const int64_t size = moe.experts / moe.groups, begin = group * size;
  float best = selection(moe, scores, begin), second = -INFINITY;
  for (int64_t e = begin + 1; e < begin + size; ++e) {
    const float s = selection(moe, scores, e);
    if (s > best) {
      second = best;
      best = s;
    } else if (s > second) {
      second = s;
    }
  }
  return moe.group_best > 1 && size > 1 ? best + second : best;
}

// The groups that experts are selected from, a bit each.
uint64_t best_groups(const MoeSpec& moe, const float* scores) {
  uint64_t chosen = 0;
  for (int64_t i = 0; i < moe.groups_used; ++i) {
    int64_t best = -1;
    float best_score = 0;
    for (int64_t g = 0; g < moe.groups; ++g) {
      if (chosen >> g & 1) continue;
      const float s = group_score(moe, scores, g);
      if (best < 0 || s > best_score) best = g, best_score = s;
    }
    chosen |= uint64_t{1} << best;
  }
  return chosen;
}

// The best expert of the groups that is not taken.
int64_t best_expert(const MoeSpec& moe, const float* scores, uint64_t groups) {
  int64_t best = -1;
  if (moe.groups == 1 && moe.selection_bias.empty()) {
    for (int64_t e = 0; e < moe.experts; ++e)
      if (scores[e] >= 0.0f && (best < 0 || scores[e] > scores[best])) best = e;
    return best < 0 ? 0 : best;  // a router row of NaN: well-defined, but meaningless
  }
  const int64_t size = moe.experts / moe.groups;
  float best_score = 0;
  for (int64_t e = 0; e < moe.experts; ++e) {
    if (!(scores[e] >= 0.0f) || (moe.groups > 1 && !(groups >> (e / size) & 1))) continue;
    const float s = selection(moe, scores, e);
    if (best < 0 || s > best_score) best = e, best_score = s;
  }
  return best < 0 ? 0 : best;
}

// Weights in rank order.
void choose_topk(const MoeSpec& moe, const KernelTable& kernels, float* logits, int32_t* chosen, float* weights) {
  if (moe.sigmoid) {
    for (int64_t e = 0; e < moe.experts; ++e) logits[e] = 1.0f / (1.0f + std::exp(-logits[e]));
  } else {
    kernels.softmax(logits, moe.experts);
  }
  const uint64_t groups = moe.groups > 1 ? best_groups(moe, logits) : 0;
  float total = 0.0f;
  for (int64_t rank = 0; rank < moe.used; ++rank) {
    const int64_t best = best_expert(moe, logits, groups);
    chosen[rank] = static_cast<int32_t>(best);
    weights[rank] = logits[best];
    total += logits[best];
    logits[best] = kTaken;
  }
  if (moe.normalize) {
    if (total < 1e-20f) total = 1e-20f;  // sigmoids may all be 0
    for (int64_t rank = 0; rank < moe.used; ++rank) weights[rank] /= total;
  }
  if (moe.scale == 1.0f) return;
  for (int64_t rank = 0; rank < moe.used; ++rank) weights[rank] *= moe.scale;
}

}  // namespace

extern const Router kTopkRouter = {
    .name = "topk",
    .summary = "the model's own number of experts per token, the most probable ones",
    .paper = "Shazeer et al., 2017, Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer",
    .loss = Loss::lossless,
    .choose = choose_topk};

}  // namespace millrace
