#include "models/two_batches.h"

#include <algorithm>
#include <thread>

#include "base/start_thread.h"
#include "models/layer_mixers.h"
#include "models/model.h"

namespace millrace {
namespace {

// Spans [from, to) of the batch, with its tables.
void take_spans(const Batch& batch, size_t from, size_t to, Batch& out) {
  out.clear();
  const int64_t first = batch.spans[from].begin, end = batch.spans[to - 1].begin + batch.spans[to - 1].count;
  const auto part = [&](const auto& all, auto& into) { into.assign(all.begin() + first, all.begin() + end); };
  part(batch.tokens, out.tokens);
  part(batch.positions, out.positions);
  const auto spans = [&](const std::vector<BatchSpan>& all, std::vector<BatchSpan>& into) {
    for (size_t s = from; !all.empty() && s < to; ++s) {
      into.push_back(all[s]);
      into.back().begin -= first;
      into.back().chunk = static_cast<int32_t>(s - from);
    }
  };
  spans(batch.spans, out.spans);
  out.block_tables = batch.block_tables;
  out.window_tables = batch.window_tables;
  out.window_spans.resize(batch.window_spans.size());
  for (size_t g = 0; g < batch.window_spans.size(); ++g) spans(batch.window_spans[g], out.window_spans[g]);
  out.marks = batch.marks;
  for (const int32_t row : batch.output_rows)
    if (row >= first && row < end) out.output_rows.push_back(static_cast<int32_t>(row - first));
  for (BatchEmbedding given : batch.embeddings) {
    if (given.token < first || given.token >= end) continue;
    given.token -= first;
    out.embeddings.push_back(given);
  }
}

}  // namespace

AttentionWorkers::Sizes worker_sizes(const ArchSpec& spec, Isa isa, const KvLayout& layout, int64_t blocks,
                                     const KvPoolOptions& places, const ForwardLimits& limits) {
  AttentionWorkers::Sizes sizes{.layout = layout,
                                .blocks = blocks,
                                .places = places,
                                .heads = {},
                                .tokens = limits.tokens,
                                .context = limits.context,
                                .isa = isa};
  for (const LayerSpec& layer : spec.layers)
    if (keeps(layer, StateKind::keys)) sizes.heads.push_back({layer.heads, layer.kv_heads, layer.head_dim});
  return sizes;
}

int64_t worker_memory(const ArchSpec& spec, const ForwardLimits& limits, const KvLayout& layout, int threads) {
  const AttentionWorkerOptions& workers = *limits.switches.workers;
  int64_t bytes = AttentionWorkers::row_bytes(workers, worker_sizes(spec, Isa::ref, layout, 1, {}, limits));
  if (workers.batches > 1) {
    const ForwardBytes second = ForwardContext::plan(spec, limits, threads, layout);
    bytes += second.activations + second.logits;
  }
  return bytes;
}

TwoBatches::TwoBatches(ForwardContext second, AttentionWorkers& workers)
    : second_(std::move(second)), workers_(workers) {
  second_.workers = &workers;
  second_.lane = 1;
}

bool TwoBatches::split(const Batch& batch, const ForwardContext& first) {
  if (batch.spans.size() < 2 || !first.hooks.empty() || !first.hooks.blocks().empty() || !batch.visibility.empty() ||
      !batch.exits.empty() || first.skipped)
    return false;
  size_t cut = 1;
  while (cut + 1 < batch.spans.size() && 2 * batch.spans[cut].begin < batch.size()) ++cut;
  take_spans(batch, 0, cut, halves_[0]);
  take_spans(batch, cut, batch.spans.size(), halves_[1]);
  return true;
}

void TwoBatches::run(const Model& model, int64_t lane, ForwardContext& context) {
  const std::lock_guard turn(workers_.baton());
  const Batch& batch = halves_[static_cast<size_t>(lane)];
  context.failed = false;
  workers_.begin(lane, batch);
  model.forward(batch, context);
}

void TwoBatches::forward(const Model& model, ForwardContext& first) {
  workers_.take_turns(true);
  auto other = start_thread("second mini-batch", [&] { run(model, 1, second_); });
  run(model, 0, first);
  if (other.ok())
    other->join();
  else
    run(model, 1, second_);
  workers_.take_turns(false);
  const auto rows = static_cast<int64_t>(halves_[0].output_rows.size());
  const int64_t vocab = model.spec().vocab, more = std::ssize(halves_[1].output_rows);
  std::copy_n(second_.logits.as<float>(), more * vocab, first.logits.as<float>() + rows * vocab);
}

}  // namespace millrace
