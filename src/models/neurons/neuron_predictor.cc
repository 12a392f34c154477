#include "models/neurons/neuron_predictor.h"

#include "formats/format.h"
#include "kernels/activation.h"
#include "kernels/linear.h"

namespace millrace {

Result<NeuronPredictor> NeuronPredictor::create(const uint8_t* a, const uint8_t* b, std::span<const float> thresholds,
                                                int64_t width, int64_t rank, const KernelTable& table,
                                                ThreadPool& pool) {
  NeuronPredictor out;
  const Format* const f16 = find_format("f16");
  out.a_ = {.name = "predictor a", .format = f16, .rows = rank, .cols = width, .data = a};
  out.b_ = {.name = "predictor b", .format = f16, .rows = std::ssize(thresholds), .cols = rank, .data = b};
  MILLRACE_TRY_VOID(pack_weight(out.a_, table, pool));
  MILLRACE_TRY_VOID(pack_weight(out.b_, table, pool));
  out.thresholds_ = thresholds;
  return out;
}

Result<void> NeuronPredictor::score(const float* x, int64_t tokens, const KernelTable& table, ThreadPool& pool,
                                    PredictorRows& rows) const {
  const int64_t rank = a_.rows, width = a_.cols, hidden = b_.rows;
  const Activation kind = a_.format->activation;
  const int64_t bytes =
      tokens * std::max(activation_row_bytes(kind, width), activation_row_bytes(b_.format->activation, rank));
  if (rows.rounded.bytes() < bytes) {
    MILLRACE_TRY(rows.rounded, AlignedBuffer::allocate(bytes, "predictions"));
  }
  if (std::ssize(rows.low) < tokens * rank) rows.low.resize(static_cast<size_t>(tokens * rank));
  if (std::ssize(rows.scores) < tokens * hidden) rows.scores.resize(static_cast<size_t>(tokens * hidden));
  linear(pool, a_, encode_activations(table, pool, kind, x, width, tokens, width, rows.rounded.data()), rows.low.data(),
         rank);
  linear(
      pool, b_,
      encode_activations(table, pool, b_.format->activation, rows.low.data(), rank, tokens, rank, rows.rounded.data()),
      rows.scores.data(), hidden);
  return {};
}

}  // namespace millrace
