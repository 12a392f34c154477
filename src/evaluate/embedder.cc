#include "evaluate/embedder.h"

#include <fmt/format.h>

#include <algorithm>

#include "kv/kv_formats.h"
#include "models/background_packer.h"

namespace millrace {
namespace {

constexpr int64_t kBlockTokens = 16;
constexpr int64_t kStreams = 16;  // with states of recurrent layers, in one batch
constexpr int64_t kMaxContext = int64_t{1} << 24;

}  // namespace

// Where the next batch begins.
struct Embedder::Cursor {
  size_t text = 0;
  int64_t position = 0;  // within that text
};

Result<std::unique_ptr<Embedder>> Embedder::create(std::shared_ptr<const LanguageModel> model,
                                                   const EmbedderOptions& options) {
  const auto& parts = model->parts();
  if (options.context < 1 || options.context > std::min(kMaxContext, parts.model->context()))
    return Error::user(fmt::format("context: must be 1 to {} tokens, is {}",
                                   std::min(kMaxContext, parts.model->context()), options.context));
  if (options.batch_tokens < 1 || options.batch_tokens > kMaxContext)
    return Error::user(fmt::format("batch tokens: must be 1 to {}, is {}", kMaxContext, options.batch_tokens));
  MILLRACE_TRY(const KvFormats formats, find_kv_formats(options.kv_format, parts.kernels));
  if (!formats.keys)
    return Error::user(
        fmt::format("KV format: no attention kernel supports {}; try f32, f16, bf16 or q8_0", options.kv_format));

  auto embedder = std::unique_ptr<Embedder>(new Embedder());
  embedder->whole_texts_ = parts.model->spec().encoder;
  const int64_t batch_tokens =
      embedder->whole_texts_ ? std::max(options.batch_tokens, options.context) : options.batch_tokens;
  auto threads = parts.threads->get(options.threads);
  embedder->longest_ = options.context;
  KvLayout layout = formats.layout(kBlockTokens, parts.model->kv_layers());
  MILLRACE_TRY_VOID(formats.set_window_formats(layout));
  const int64_t block_tokens = layout.block_tokens;
  // Room for the longest text, or for a batch of short texts whose last blocks are half empty.
  const int64_t blocks =
      (options.context + block_tokens - 1) / block_tokens + 2 * (batch_tokens + block_tokens - 1) / block_tokens;
  MILLRACE_TRY(embedder->runner_,
               ModelRunner::create_charged(*parts.model, parts.kernels,
                                           {.threads = std::move(threads),
                                            .layout = std::move(layout),
                                            .blocks = blocks,
                                            .limits = {batch_tokens, 1, options.context},
                                            .reads_hidden = true,
                                            .streams = kStreams},
                                           parts.accounts, "embed shorter texts or raise the budget"));
  if (BackgroundPacker* packing = parts.model->packing()) MILLRACE_TRY_VOID(packing->finish());
  embedder->model_ = std::move(model);
  return embedder;
}

Result<void> Embedder::check(std::span<const std::vector<TokenId>> texts) const {
  const int64_t vocab = model_->info().vocab;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto count = static_cast<int64_t>(texts[i].size());
    if (count < 1 || count > longest_)
      return Error::user(fmt::format("text {}: must have 1 to {} tokens, has {}", i, longest_, count));
    for (TokenId token : texts[i])
      if (token < 0 || token >= vocab)
        return Error::user(fmt::format("text {}: token {} is outside the model's vocabulary of {}", i, token, vocab));
  }
  return {};
}

// Adds texts in order until the batch is full or the blocks are used up.
Result<void> Embedder::fill_batch(std::span<const std::vector<TokenId>> texts, Pooling pooling, Cursor& cursor) {
  KvPool& kv = runner_->kv();
  runner_->start();
  rows_.clear();
  const int64_t most = runner_->limits().tokens;
  const StatePool& states = kv.states();
  size_t begun = 0;
  while (cursor.text < texts.size() && runner_->tokens() < most) {
    if (states.any() && begun++ == static_cast<size_t>(states.slots())) break;
    const std::vector<TokenId>& text = texts[cursor.text];
    const auto count = static_cast<int64_t>(text.size());
    if (whole_texts_ && count > most - runner_->tokens()) break;
    if (cursor.position == 0) {
      if (kv.free_blocks() < kv.blocks_for(count)) break;
      for (int64_t i = 0; i < kv.blocks_for(count); ++i) {
        MILLRACE_TRY(BlockId block, kv.allocate());
        open_blocks_.push_back(block);
      }
    }
    const int64_t take = std::min(count - cursor.position, most - runner_->tokens());
    const auto state = states.any() ? static_cast<int64_t>(cursor.text) % states.slots() : 0;
    runner_->begin(open_blocks_, cursor.position, nullptr, static_cast<StateId>(state));
    for (int64_t i = cursor.position; i < cursor.position + take; ++i) {
      const bool wanted = pooling == Pooling::last ? i + 1 == count : pooling == Pooling::cls ? i == 0 : true;
      if (wanted) rows_.push_back({cursor.text, pooling == Pooling::cls || i + 1 == count});
      runner_->add(text[static_cast<size_t>(i)], i, wanted);
    }
    cursor.position += take;
    if (cursor.position < count) break;
    whole_blocks_.insert(whole_blocks_.end(), open_blocks_.begin(), open_blocks_.end());
    open_blocks_.clear();
    ++cursor.text;
    cursor.position = 0;
  }
  return {};
}

// Sums in text order, however the text was split into batches.
Result<void> Embedder::take_rows(std::span<const std::vector<TokenId>> texts, Pooling pooling, const Sink& sink) {
  const auto size = static_cast<size_t>(width());
  const float* hidden = runner_->hidden();
  for (size_t r = 0; r < rows_.size(); ++r, hidden += size) {
    if (pooling == Pooling::mean) {
      sum_.resize(size);
      for (size_t i = 0; i < size; ++i) sum_[i] += hidden[i];
    } else {
      values_.insert(values_.end(), hidden, hidden + size);
    }
    if (!rows_[r].last) continue;
    if (pooling == Pooling::mean) {
      values_.resize(size);
      for (size_t i = 0; i < size; ++i)
        values_[i] = static_cast<float>(sum_[i] / static_cast<double>(texts[rows_[r].text].size()));
      sum_.clear();
    }
    MILLRACE_TRY_VOID(sink(rows_[r].text, std::exchange(values_, {})));
  }
  return {};
}

Result<void> Embedder::run(std::span<const std::vector<TokenId>> texts, Pooling pooling, const Sink& sink) {
  MILLRACE_TRY_VOID(check(texts));
  const auto release = [&](std::vector<BlockId>& blocks) {
    for (BlockId block : blocks) runner_->kv().release(block);
    blocks.clear();
  };
  sum_.clear();
  values_.clear();
  Result<void> done;
  for (Cursor cursor; cursor.text < texts.size() && done.ok();) {
    done = fill_batch(texts, pooling, cursor);
    if (!done.ok()) break;
    runner_->forward_hidden();
    done = runner_->take_failure();
    if (done.ok()) done = take_rows(texts, pooling, sink);
    release(whole_blocks_);
  }
  release(open_blocks_);
  release(whole_blocks_);
  return done;
}

}  // namespace millrace
