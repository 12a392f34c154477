#include "run/simulated_documents.h"

#include <cmath>

namespace millrace {

SimulatedDocuments::SimulatedDocuments(const Machine& machine)
    : kv_(&machine.kv), time_(machine.time), codec_(machine.codec), layers_(machine.layers), tokens_(machine.tokens) {}

// As an engine has them, beside a KV cache that is encoded.
Result<void> SimulatedDocuments::keep_rows(const EngineOptions& options) {
  MILLRACE_TRY(const auto context, make_document_context(options.document_context));
  if (!context || context->encoder() || codec_.empty()) return {};
  const KvLayout& layout = kv_->layout();
  KvLayout rows{.format = layout.format, .block_tokens = KeptRows::kBlockTokens, .layers = {layout.layers.front()}};
  const int64_t tokens = options.document_tokens > 0 ? options.document_tokens : options.context;
  MILLRACE_TRY(auto pool, KvPool::create(std::move(rows), KeptRows::blocks(tokens)));
  rows_ = std::make_unique<KvPool>(std::move(pool));
  kept_.emplace(*rows_, options.prefix_cache);
  return {};
}

bool SimulatedDocuments::hold_part(StreamRef stream, const ContextPart& part, int64_t& budget) {
  return kept_->hold(stream, part, budget, tokens_, [this](const RowsLease&, int64_t first, int64_t count) {
    StepShape shape;
    time_.add({.first = first, .count = count}, shape);
    time_.advance(time_.cost->step_seconds(shape));
  });
}

// As refresh_parts() computes them: of a share, all tokens in the layers before the one that is compared, and the
// chosen ones in the others.
void SimulatedDocuments::refresh(StreamRef stream, const ContextPlan& plan, std::span<const size_t> stale) {
  StepShape whole, first_layer, others;
  for (const size_t index : stale) {
    const ContextPart& part = plan.parts[index];
    const int64_t tokens = part.end - part.begin;
    if (part.fresh_first > 0) time_.add({.first = part.begin, .count = part.fresh_first}, whole);
    if (part.fresh_share <= 0) continue;
    time_.add({.first = part.begin, .count = tokens}, first_layer);
    StepShape all;
    time_.add({.first = part.begin, .count = tokens}, all);
    const auto chosen = static_cast<int64_t>(std::ceil(part.fresh_share * static_cast<double>(tokens)));
    others.tokens += chosen;
    others.keys += all.keys;
    others.pairs += all.pairs * static_cast<double>(chosen) / static_cast<double>(tokens);
  }
  const double share = layers_ > 1 ? 1.0 / static_cast<double>(layers_) : 0;  // of the first layer
  double seconds = whole.tokens > 0 ? time_.cost->step_seconds(whole) : 0;
  if (others.tokens > 0)
    seconds += share * time_.cost->step_seconds(first_layer) + (1 - share) * time_.cost->step_seconds(others);
  time_.advance(seconds);
}

}  // namespace millrace
