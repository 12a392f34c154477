#include "models/draft_heads/model_head.h"

#include "models/blocks/blocks.h"

namespace millrace {

void draft_head(const ArchSpec& spec, const NormWeights& norm, const Weight& head, std::span<const int32_t> rows,
                ForwardContext& context) {
  if (rows.empty()) return;
  const int64_t width = spec.width, count = std::ssize(rows);
  const KernelTable& kernels = context.kernels();
  float* normed = context.normed.as<float>();
  const ActivationRows x = activation_rows(head.format->activation, count, width, context.encoded.data());
  for_rows(context, count, 2 * width, [&](int64_t i) {
    norm_row(spec, norm, kernels, context.residual.as<float>() + rows[static_cast<size_t>(i)] * width,
             normed + i * width);
    encode_row(kernels, x, i, normed + i * width, context.encoded.data());
  });
  static const std::vector<float> kNoBias;
  project(context, normed, x, {{LinearId{}, head, kNoBias, context.logits.as<float>()}});
}

void model_head(const Model& target, const ArchSpec& spec, const NormWeights& norm, std::span<const int32_t> rows,
                ForwardContext& context) {
  draft_head(spec, norm, target.head(), rows, context);
  const ArchSpec& model = target.spec();
  if (model.logit_scale == 1.0f && model.final_softcap <= 0.0f) return;
  for (int64_t i = 0; i < std::ssize(rows); ++i) {
    float* logits = context.logits.as<float>() + i * model.vocab;
    if (model.logit_scale != 1.0f) context.kernels().scale(logits, model.logit_scale, model.vocab);
    if (model.final_softcap > 0.0f) context.kernels().softcap(logits, model.final_softcap, model.vocab);
  }
}

}  // namespace millrace
