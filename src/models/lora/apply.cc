#include "models/lora/apply.h"

#include <algorithm>

#include "models/lora/adapter.h"

namespace millrace {
namespace {

void add_rows(ForwardContext& context, const LoraPair& pair, float scale, const float* x, float* y, int64_t rows) {
  LoraRows& lora = context.lora;
  const KernelTable& kernels = context.kernels();
  ThreadPool& pool = context.pool();
  const Weight &a = pair.a, &b = pair.b;
  float* inner = lora.inner.as<float>();
  float* product = lora.product.as<float>();
  const ActivationRows in =
      encode_activations(kernels, pool, a.format->activation, x, a.cols, rows, a.cols, lora.rounded.data());
  linear(pool, a, in, inner, a.rows);
  const ActivationRows low =
      encode_activations(kernels, pool, b.format->activation, inner, b.cols, rows, b.cols, lora.rounded.data());
  linear(pool, b, low, product, b.rows);
  for (int64_t t = 0; t < rows; ++t) kernels.add_scaled(product + t * b.rows, scale, y + t * b.rows, b.rows);
}

}  // namespace

void add_lora(ForwardContext& context, const Weight& weight, const float* x, float* y) {
  for (const LoraRows::Run& run : context.lora.runs) {
    for (const LoraUse& use : *run.mix) {
      const LoraPair* pair = use.adapter->find(&weight);
      if (!pair) continue;
      for (int64_t t = run.begin; t < run.begin + run.count; t += LoraRows::kRows) {
        const int64_t rows = std::min(LoraRows::kRows, run.begin + run.count - t);
        add_rows(context, *pair, use.scale, x + t * weight.cols, y + t * weight.rows, rows);
      }
    }
  }
}

}  // namespace millrace
