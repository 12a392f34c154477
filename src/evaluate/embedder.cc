#include "evaluate/embedder.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/cpu.h"

namespace millrace {
namespace {

constexpr int64_t kBlockTokens = 16;
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
  const Format* format = find_format(options.kv_format);
  if (!format || !parts.kernels.find_attention(format))
    return Error::user(
        fmt::format("KV format: no attention kernel supports {}; try f32, f16, bf16 or q8_0", options.kv_format));

  auto embedder = std::unique_ptr<Embedder>(new Embedder());
  embedder->pool_ = std::make_unique<ThreadPool>(options.threads > 0 ? options.threads : available_cores());
  embedder->longest_ = options.context;
  KvLayout layout{format, kBlockTokens, parts.model->kv_layers()};
  MILLRACE_TRY_VOID(layout.check());
  // Room for the longest text, or for a batch of short texts whose last blocks are half empty.
  const int64_t blocks = (options.context + kBlockTokens - 1) / kBlockTokens +
                         2 * (options.batch_tokens + kBlockTokens - 1) / kBlockTokens;
  const ForwardLimits limits{options.batch_tokens, 1, options.context};
  const ForwardBytes forward =
      ForwardContext::plan(parts.model->spec(), limits, embedder->pool_->threads(), kBlockTokens);
  for (const auto& [name, bytes] :
       {std::pair("KV", blocks * layout.block_bytes()), {"activations", forward.activations + forward.logits}}) {
    MILLRACE_TRY(auto hold, MemoryHold::take(parts.accounts, name, bytes, "embed shorter texts or raise the budget"));
    embedder->memory_.push_back(std::move(hold));
  }
  MILLRACE_TRY(auto kv, KvPool::create(layout, blocks));
  embedder->kv_ = std::make_unique<KvPool>(std::move(kv));
  MILLRACE_TRY(auto context,
               ForwardContext::create(parts.model->spec(), parts.kernels, *embedder->pool_, *embedder->kv_, limits));
  embedder->context_ = std::make_unique<ForwardContext>(std::move(context));
  embedder->context_->hidden_only = true;
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
  batch_.clear();
  rows_.clear();
  const int64_t most = context_->limits().tokens;
  while (cursor.text < texts.size() && batch_.size() < most) {
    const std::vector<TokenId>& text = texts[cursor.text];
    const auto count = static_cast<int64_t>(text.size());
    if (cursor.position == 0) {
      if (kv_->free_blocks() < kv_->blocks_for(count)) break;
      for (int64_t i = 0; i < kv_->blocks_for(count); ++i) {
        MILLRACE_TRY(BlockId block, kv_->allocate());
        open_blocks_.push_back(block);
      }
    }
    const int64_t take = std::min(count - cursor.position, most - batch_.size());
    batch_.spans.push_back({batch_.size(), take, cursor.position, static_cast<int64_t>(batch_.block_tables.size()),
                            static_cast<int64_t>(open_blocks_.size())});
    batch_.block_tables.insert(batch_.block_tables.end(), open_blocks_.begin(), open_blocks_.end());
    for (int64_t i = cursor.position; i < cursor.position + take; ++i) {
      const bool wanted = pooling == Pooling::last ? i + 1 == count : pooling == Pooling::cls ? i == 0 : true;
      if (wanted) {
        batch_.output_rows.push_back(static_cast<int32_t>(batch_.size()));
        rows_.push_back({cursor.text, pooling == Pooling::cls || i + 1 == count});
      }
      batch_.tokens.push_back(text[static_cast<size_t>(i)]);
      batch_.positions.push_back(static_cast<int32_t>(i));
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
  const float* hidden = context_->normed.as<float>();
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
    for (BlockId block : blocks) kv_->release(block);
    blocks.clear();
  };
  sum_.clear();
  values_.clear();
  Result<void> done;
  for (Cursor cursor; cursor.text < texts.size() && done.ok();) {
    done = fill_batch(texts, pooling, cursor);
    if (!done.ok()) break;
    model_->parts().model->forward(batch_, *context_);
    done = take_rows(texts, pooling, sink);
    release(whole_blocks_);
  }
  release(open_blocks_);
  release(whole_blocks_);
  return done;
}

}  // namespace millrace
