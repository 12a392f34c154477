#include <algorithm>

#include "models/lora/adapter.h"
#include "models/lora/rows.h"

namespace millrace {
namespace {

void add_rows(LoraRows& lora, const LinearCall& call, const LoraPair& pair, float scale, int64_t begin, int64_t rows) {
  const KernelTable& kernels = call.kernels;
  ThreadPool& pool = call.pool;
  const Weight &a = pair.a, &b = pair.b;
  const float* x = call.in.x + begin * a.cols;
  float* y = call.y + begin * b.rows;
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

void LoraRows::apply(const LinearCall& call) {
  for (const Run& run : runs) {
    for (const LoraUse& use : *run.mix) {
      const LoraPair* pair = use.adapter->find(&call.in.weight);
      if (!pair) continue;
      for (int64_t t = run.begin; t < run.begin + run.count; t += kRows)
        add_rows(*this, call, *pair, use.scale, t, std::min(kRows, run.begin + run.count - t));
    }
  }
}

}  // namespace millrace
