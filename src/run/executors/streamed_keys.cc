#include "run/executors/streamed_keys.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "attention/block_lines.h"
#include "attention/block_sparse.h"
#include "attention/chosen_blocks.h"

namespace millrace {
namespace {

constexpr int64_t kMaxChoosing = 8;  // tokens of a span; the queries of more tokens see nearly every block together

void sort_unique(std::vector<BlockId>& blocks) {
  std::ranges::sort(blocks);
  const auto rest = std::ranges::unique(blocks);
  blocks.erase(rest.begin(), rest.end());
}

void join_blocks(std::vector<BlockId>& to, const std::vector<BlockId>& more) {
  const auto middle = std::ssize(to);
  to.insert(to.end(), more.begin(), more.end());
  std::inplace_merge(to.begin(), to.begin() + middle, to.end());
  const auto rest = std::ranges::unique(to);
  to.erase(rest.begin(), rest.end());
}

// Returns true if tokens of the span see blocks that only this pass finds, or if it reads all blocks to find some:
// which ones are not known before it runs.
bool finds_within(const AttentionPattern& pattern, const BatchSpan& span) {
  const DynamicPattern* const dynamic = dynamic_pattern(&pattern);
  if (!dynamic) return false;
  const int64_t first = span.first_slot / pattern.block(), end = (span.first_slot + span.count) / pattern.block();
  const int64_t last = (span.first_slot + span.count - 1) / pattern.block(), lines = dynamic->line_blocks();
  return (lines > 0 && end / lines > first / lines) || (dynamic->sums().kept > 0 && last > first);
}

}  // namespace

Result<std::unique_ptr<StreamedKeys>> StreamedKeys::create(KvPool& pool, const KeyStreamOptions& options,
                                                           const AttentionPattern* pattern, int64_t context) {
  MILLRACE_TRY(auto file, LayerFile::create(pool, {.folder = options.folder}));
  return std::unique_ptr<StreamedKeys>(new StreamedKeys(pool, std::move(file), options, pattern, context));
}

StreamedKeys::StreamedKeys(KvPool& pool, std::unique_ptr<LayerFile> file, const KeyStreamOptions& options,
                           const AttentionPattern* pattern, int64_t context)
    : pool_(pool), file_(std::move(file)), reads_ahead_(options.reads_ahead), pattern_(pattern), context_(context) {
  pool_.copy_by([this](BlockId from, BlockId to) {
    forget();
    file_->copy(from, to);
  });
}

void StreamedKeys::forget() {
  for (Turn& turn : turns_) {
    file_->wait(turn.transfer);
    turn = {};
  }
}

void StreamedKeys::add_blocks(const Batch& batch, const BatchSpan& span, int64_t begin, int64_t end,
                              Blocks& blocks) const {
  const int64_t tokens = pool_.layout().block_tokens;
  for (int64_t b = begin / tokens; b < (end + tokens - 1) / tokens; ++b) {
    const BlockId block = batch.block_tables[static_cast<size_t>(span.table + b)];
    if (block >= pool_.resident_blocks()) blocks.push_back(block);
  }
}

void StreamedKeys::begin_pass(const Batch& batch) {
  in_pass_ = true;
  saved_.assign(pool_.staged().turns.size(), 0);
  needed_.clear();
  own_.clear();
  written_.clear();
  resident_ = 0;
  const int64_t alone = pattern_ ? pattern_->block() : pool_.layout().block_tokens;
  for (const BatchSpan& span : batch.spans) {
    const size_t before = needed_.size();
    add_blocks(batch, span, 0, span.first_slot, needed_);
    resident_ += pool_.blocks_for(span.first_slot) - static_cast<int64_t>(needed_.size() - before);
    add_blocks(batch, span, span.first_slot / alone * alone, span.first_slot, own_);
    add_blocks(batch, span, span.first_slot, span.first_slot + span.count, written_);
  }
  sort_unique(needed_);
  sort_unique(own_);
  sort_unique(written_);
}

int64_t StreamedKeys::next_layer(int64_t layer) const {
  const auto layers = std::ssize(pool_.staged().turns);
  for (int64_t i = 1; i <= layers; ++i)
    if (pool_.staged().turn((layer + i) % layers) >= 0) return (layer + i) % layers;
  return layer;
}

void StreamedKeys::bring(int64_t layer, const Blocks& blocks, bool ahead) {
  Turn& turn = turn_of(layer);
  if (turn.layer != layer) {
    turn.layer = layer;
    turn.blocks.clear();
  }
  missing_.clear();
  std::ranges::set_difference(blocks, turn.blocks, std::back_inserter(missing_));
  if (missing_.empty()) return;
  turn.transfer = file_->read(layer, missing_);
  join_blocks(turn.blocks, missing_);
  stats_.layer_blocks_read += std::ssize(missing_);
  if (ahead) stats_.layer_blocks_ahead += std::ssize(missing_);
}

void StreamedKeys::wait(int64_t layer) {
  const LayerFile::Transfer transfer = turn_of(layer).transfer;
  if (file_->is_done(transfer)) return;
  const auto begin = std::chrono::steady_clock::now();
  file_->wait(transfer);
  stats_.wait_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void StreamedKeys::before_keys(const Batch& batch, int64_t layer) {
  if (pool_.staged().turn(layer) < 0) return;
  if (!in_pass_) begin_pass(batch);
  stats_.layer_blocks += resident_ + std::ssize(needed_);
  bring(layer, pattern_ ? own_ : needed_, false);
  if (saved_[static_cast<size_t>(layer)]) bring(layer, written_, false);  // a layer that reads an earlier one's keys
  const int64_t next = next_layer(layer);
  if (reads_ahead_ && !pattern_ && next > layer && pool_.staged().turn(next) != pool_.staged().turn(layer))
    bring(next, needed_, true);
  wait(layer);
}

void StreamedKeys::save(int64_t layer) {
  if (std::exchange(saved_[static_cast<size_t>(layer)], 1) || written_.empty()) return;
  Turn& turn = turn_of(layer);
  turn.transfer = file_->write(layer, written_);  // the next layer of the turn waits before it stores keys
  join_blocks(turn.blocks, written_);
}

void StreamedKeys::before_attention(const AttentionInput& input) {
  const int64_t layer = input.layer.layer;
  if (pool_.staged().turn(layer) < 0) return;
  save(layer);
  if (!pattern_) return;
  const AttentionPattern* const pattern = pattern_of(input.layer, context_);
  bring(layer, pattern ? choose(input, *pattern) : needed_, false);
  wait(layer);
}

const StreamedKeys::Blocks& StreamedKeys::choose(const AttentionInput& input, const AttentionPattern& pattern) {
  chosen_.clear();
  for (const BatchSpan& span : input.batch.spans) {
    if (!pattern.applies(span.answer) || span.count > kMaxChoosing || finds_within(pattern, span))
      add_blocks(input.batch, span, 0, span.first_slot, chosen_);
    else
      for (int64_t token = 0; token < span.count; ++token) choose_for(input, pattern, span, token);
  }
  sort_unique(chosen_);
  Blocks stored;  // blocks of the batch's own tokens are in memory already
  std::ranges::set_intersection(chosen_, needed_, std::back_inserter(stored));
  return chosen_ = std::move(stored);
}

void StreamedKeys::choose_for(const AttentionInput& input, const AttentionPattern& pattern, const BatchSpan& span,
                              int64_t token) {
  const AttentionLayer& layer = input.layer;
  const int64_t query_block = (span.first_slot + token) / pattern.block(), group = layer.heads / layer.kv_heads;
  if (const DynamicPattern* dynamic = dynamic_pattern(&pattern))
    features_.resize(static_cast<size_t>(dynamic->summary_floats(layer.head_dim)));
  scores_.resize(static_cast<size_t>(query_block));
  work_.resize(static_cast<size_t>(choose_work_floats(pattern, query_block)));
  const int32_t* const table = input.batch.block_tables.data() + span.table;
  for (int64_t head = 0; head < layer.kv_heads; ++head) {
    const float* const q = input.q + ((span.begin + token) * layer.heads + head * group) * layer.head_dim;
    BlockMarks marks(query_block);
    choose_blocks(input.kv, layer, pattern, table, head, query_block, q, features_.data(), scores_.data(), work_.data(),
                  marks);
    marks.each([&](int64_t block) {
      add_blocks(input.batch, span, block * pattern.block(), (block + 1) * pattern.block(), chosen_);
    });
  }
}

void StreamedKeys::end_pass(const StepInput& input, StepOutput& output) {
  if (!std::exchange(in_pass_, false)) return;
  failed_.clear();
  file_->take_failed(failed_);
  std::erase_if(failed_, [&](BlockId block) { return !std::ranges::binary_search(needed_, block); });
  sort_unique(failed_);
  // The next step needs what this one has needed and written, as long as its streams go on.
  const int64_t first = next_layer(-1);
  if (reads_ahead_ && !pattern_) {
    join_blocks(needed_, written_);
    bring(first, needed_, true);
  }
  if (failed_.empty()) return;
  name_unread(input, output);
  forget();
}

void StreamedKeys::name_unread(const StepInput& input, StepOutput& output) const {
  size_t at = 0, window = 0;
  for (size_t i = 0; i < input.chunks.size(); ++i) {
    const StepChunk& chunk = input.chunks[i];
    const auto own = std::span(input.blocks).subspan(at, static_cast<size_t>(chunk.blocks));
    at += own.size();
    for (int64_t g = 0; g < chunk.windows; ++g) at += static_cast<size_t>(input.windows[window++].blocks);
    const bool hit =
        std::ranges::any_of(own, [&](BlockId block) { return std::ranges::binary_search(failed_, block); });
    if (hit) output.unread.push_back(static_cast<int64_t>(i));
  }
}

KeyStreamStats StreamedKeys::stats() const {
  const LayerFileStats file = file_->stats();
  KeyStreamStats stats = stats_;
  stats.blocks = pool_.ids() - pool_.resident_blocks();
  stats.resident_blocks = pool_.resident_blocks();
  stats.io_uring = file.io == "io_uring";
  stats.direct = file.direct;
  stats.read_bytes = file.read_bytes;
  stats.written_bytes = file.written_bytes;
  stats.failed_blocks = file.failed_blocks;
  return stats;
}

}  // namespace millrace
