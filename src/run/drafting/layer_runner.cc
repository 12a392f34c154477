#include "run/drafting/layer_runner.h"

#include <algorithm>
#include <limits>

#include "models/mixers/mixer.h"
#include "models/visible.h"
#include "run/drafting/draft_draw.h"
#include "run/executors/executor_stream.h"

namespace millrace {
namespace {

constexpr const char* kLayerMemory = "activations of drafts";

// The token before token `index`, where the draft follows the stream's own tokens.
int64_t token_before(const Sequence& s, int64_t index) {
  if (index <= s.size()) return index - 1;
  const int64_t parent = s.draft.parent(index - s.size());
  return parent < 0 ? s.size() - 1 : s.size() + parent;
}

// Nodes of a tree before token `end`; of a chain none.
size_t draft_nodes(const Sequence& s, int64_t end) {
  return s.draft.parents.empty() ? 0 : static_cast<size_t>(end - s.size());
}

int64_t draft_position(const Sequence& s, int64_t index) {
  int64_t behind = 0;
  for (; index >= s.size(); ++behind) index = token_before(s, index);
  return index + behind;
}

}  // namespace

LayerRunner::~LayerRunner() {
  if (target_ && layer_->joins()) target_->hooks().remove(taps_);
}

std::vector<KvLayer> LayerRunner::layers() const {
  std::vector<KvLayer> all = layer_states(layer_->spec());
  if (layer_->reads_features()) all.push_back(FeaturePlane::layer(layer_->width()));
  return all;
}

// A stream may lack all tokens of its last draft more than the step runs, and the one behind them.
ForwardLimits LayerRunner::limits(const Sizes& sizes) const {
  return {.tokens = sizes.tokens + sizes.streams * (sizes.longest + 2),
          .outputs = sizes.streams * sizes.rows,
          .context = sizes.context};
}

int64_t LayerRunner::memory(const Sizes& sizes, int threads, const KvLayout& layout) const {
  const ForwardLimits most = limits(sizes);
  const ForwardBytes bytes = ForwardContext::plan(layer_->spec(), most, threads, layout);
  const int64_t vocab = layer_->own_vocabulary() ? layer_->target_vocab() : 0;
  const int64_t taps = layer_->joins() ? 12 * sizes.tokens * layer_->width() : 0;
  return bytes.activations + bytes.logits + 4 * most.tokens * layer_->width() + layer_->scratch_bytes(most.tokens) +
         taps + (32 * layer_->target_vocab() + 4 * vocab) * threads;
}

Result<void> LayerRunner::start(ModelRunner& target, int64_t first_layer, const Sizes& sizes) {
  const ForwardLimits most = limits(sizes);
  MILLRACE_TRY(ForwardContext context,
               ForwardContext::create(layer_->spec(), target.context().kernels(), target.threads(), target.kv(), most));
  context_.emplace(std::move(context));
  context_->first_kv_layer = first_layer;
  if (layer_->reads_features())
    plane_ = FeaturePlane(target.kv(), target.context().kernels(), first_layer + layer_->spec().layer_count());
  MILLRACE_TRY(features_, AlignedBuffer::allocate(4 * most.tokens * layer_->width(), kLayerMemory));
  MILLRACE_TRY(scratch_, AlignedBuffer::allocate(layer_->scratch_bytes(most.tokens), kLayerMemory));
  const int64_t workers = target.threads().threads();
  if (layer_->own_vocabulary()) {
    MILLRACE_TRY(mapped_, AlignedBuffer::allocate(4 * layer_->target_vocab() * workers, kLayerMemory));
  }
  rows_.resize(static_cast<size_t>(workers));
  for (SamplingRow& row : rows_) row.reserve(layer_->target_vocab());
  drawing_.reserve(static_cast<size_t>(sizes.streams));
  batch_.tokens.reserve(static_cast<size_t>(most.tokens));
  batch_.positions.reserve(static_cast<size_t>(most.tokens));
  batch_.spans.reserve(static_cast<size_t>(sizes.streams));
  batch_.output_rows.reserve(static_cast<size_t>(most.outputs));
  reserve_tables(target.kv(), sizes.streams, sizes.context, batch_);
  reserve_visibility(sizes.streams, most.tokens, batch_);
  batch_.segments.reserve(static_cast<size_t>(sizes.streams));
  if (!layer_->reads_features()) {
    reserve_visibility(sizes.streams, most.tokens, crossing_);
    crossing_.segments.reserve(static_cast<size_t>(sizes.streams));
  }
  target_ = &target;
  if (!layer_->joins()) return {};
  taps_.layers = layer_->taps();
  MILLRACE_TRY(taps_.rows, AlignedBuffer::allocate(12 * sizes.tokens * layer_->width(), kLayerMemory));
  target.hooks().add(taps_);
  return {};
}

void LayerRunner::Taps::residual(int64_t layer, const float* from, int64_t tokens, int64_t width) {
  for (size_t i = 0; i < layers.size(); ++i)
    if (layers[i] == layer)
      for (int64_t t = 0; t < tokens; ++t)
        std::copy_n(from + t * width, width, rows.as<float>() + (3 * t + static_cast<int64_t>(i)) * width);
}

void LayerRunner::keep() {
  const ThreadPool::Turn turn(target_->threads());
  const Batch& batch = target_->batch();
  const float* rows = target_->hidden();
  if (layer_->joins()) {
    layer_->join(taps_.rows.as<float>(), batch.size(), scratch_.data(), target_->threads(), features_.as<float>());
    rows = features_.as<float>();
  }
  plane_.store(batch, rows, target_->threads());
}

// A layer that reads features has nothing of the stream's first token, which no feature comes before: its slot is
// neither written nor seen.
void LayerRunner::add(DraftRun& run) {
  const Sequence& s = *run.stream;
  const bool reads = layer_->reads_features();
  const int64_t least = reads ? 1 : 0;
  const int64_t first = std::max(least, run.first), end = run.first + run.count, draws = std::ssize(run.picks);
  if (first >= end) return;
  const int64_t slot = first - s.kv.left_out;
  if (run.draws) drawing_.push_back({&run, std::ssize(batch_.output_rows), batch_.size(), first});
  batch_.spans.push_back({batch_.size(), end - first, slot, std::ssize(batch_.block_tables), std::ssize(s.kv.blocks), 0,
                          static_cast<int32_t>(batch_.spans.size())});
  batch_.block_tables.insert(batch_.block_tables.end(), s.kv.blocks.begin(), s.kv.blocks.end());
  for (int64_t i = first; i < end; ++i) {
    if (reads)
      plane_.read(s.kv.blocks, token_before(s, i) - s.kv.left_out,
                  features_.as<float>() + batch_.size() * plane_.width());
    if (run.draws && i >= end - draws) batch_.output_rows.push_back(static_cast<int32_t>(batch_.size()));
    batch_.tokens.push_back(s.token_at(i));
    batch_.positions.push_back(static_cast<int32_t>(draft_position(s, i)));
  }
  const KeySegment seen{least, slot + end - first};
  VisibleKeys visible{.segments = {&seen, 1}};
  if (first >= s.size()) visible.parents = std::span(s.draft.parents).first(draft_nodes(s, end));
  add_visibility(visible, batch_);
}

// The batch again, whose tokens see what the engine's model has computed of their streams.
void LayerRunner::add_crossing(std::span<const DraftRun> runs) {
  crossing_.clear();
  crossing_.tokens = batch_.tokens;
  crossing_.positions = batch_.positions;
  crossing_.block_tables = batch_.block_tables;
  for (size_t i = 0; i < batch_.spans.size(); ++i) {
    const Sequence& s = *runs[i].stream;
    crossing_.spans.push_back(batch_.spans[i]);
    crossing_.spans.back().visibility = -1;
    const KeySegment computed{0, s.computed - s.kv.left_out};
    add_visibility({.segments = {&computed, 1}}, crossing_);
  }
}

void LayerRunner::run_layer(std::span<const DraftRun> runs) {
  if (layer_->reads_features()) {
    layer_->forward(batch_, features_.as<float>(), scratch_.data(), *context_);
  } else if (drawing_.empty()) {
    layer_->store(batch_, *context_);
  } else {
    add_crossing(runs);
    layer_->cross(batch_, crossing_, *context_);
  }
}

void LayerRunner::run(std::span<DraftRun> runs) {
  batch_.clear();
  drawing_.clear();
  for (DraftRun& run : runs) add(run);
  if (batch_.size() == 0) return;
  const ThreadPool::Turn turn(target_->threads());
  run_layer(runs);
  for (const Draw& draw : drawing_) {
    if (!layer_->reads_features()) break;
    const Sequence& s = *draw.run->stream;
    for (int64_t i = std::max(draw.first, s.size() - 1); i < draw.run->first + draw.run->count; ++i)
      plane_.write(s.kv.blocks, i - s.kv.left_out,
                   context_->residual.as<float>() + (draw.token + i - draw.first) * plane_.width());
  }
  layer_->head(batch_.output_rows, *context_);
  if (drawing_.size() == 1)
    draw(drawing_.front(), 0);
  else if (!drawing_.empty())
    target_->threads().parallel_for(std::ssize(drawing_),
                                    [&](int64_t i, int worker) { draw(drawing_[static_cast<size_t>(i)], worker); });
}

// Logits over the model's vocabulary.
std::span<float> LayerRunner::target_logits(int64_t row, int worker) {
  const int64_t own = layer_->spec().vocab, vocab = layer_->target_vocab();
  float* logits = context_->logits.as<float>() + row * own;
  if (!layer_->own_vocabulary()) return {logits, static_cast<size_t>(vocab)};
  float* mapped = mapped_.as<float>() + worker * vocab;
  std::fill_n(mapped, vocab, -std::numeric_limits<float>::infinity());
  for (int64_t i = 0; i < own; ++i) mapped[layer_->target_token(i)] = logits[i];
  return {mapped, static_cast<size_t>(vocab)};
}

void LayerRunner::draw(const Draw& draw, int worker) {
  DraftRun& run = *draw.run;
  const Sequence& s = *run.stream;
  const int64_t end = run.first + run.count;
  for (int64_t i = 0; i < std::ssize(run.picks); ++i) {
    const int64_t token = end - std::ssize(run.picks) + i;
    const bool follows = s.draft.parents.empty() || token < s.size();
    draw_beside(run, run.picks[static_cast<size_t>(i)], draft_position(s, token) + 1, follows,
                target_logits(draw.row + i, worker), rows_[static_cast<size_t>(worker)]);
  }
}

}  // namespace millrace
