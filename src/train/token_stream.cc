#include "train/token_stream.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "learn/bpe_trainer.h"

namespace millrace {

TokenStream::TokenStream(std::vector<std::vector<TokenId>> stories, uint64_t seed)
    : stories_(std::move(stories)), seed_(seed) {
  for (const auto& story : stories_) tokens_ += static_cast<int64_t>(story.size()) + 2;
  shuffle();
}

void TokenStream::seek(int64_t epoch, int64_t cursor) {
  epoch_ = epoch;
  cursor_ = cursor;
  shuffle();
}

void TokenStream::shuffle() {
  std::vector<size_t> order(stories_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937_64 random(seed_ + static_cast<uint64_t>(epoch_) * 0x9e3779b97f4a7c15ull);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  stream_.clear();
  stream_.reserve(static_cast<size_t>(tokens_));
  for (size_t s : order) {
    stream_.push_back(kBosId);
    stream_.insert(stream_.end(), stories_[s].begin(), stories_[s].end());
    stream_.push_back(kEosId);
  }
}

TokenBatch TokenStream::next(int64_t rows, int64_t window) {
  TokenBatch batch{torch::empty({rows, window}, torch::kInt64), torch::empty({rows * window}, torch::kInt64)};
  int64_t* input = batch.inputs.data_ptr<int64_t>();
  int64_t* target = batch.targets.data_ptr<int64_t>();
  for (int64_t row = 0; row < rows; ++row) {
    if (cursor_ + window + 1 > tokens_) {
      ++epoch_;
      cursor_ = 0;
      shuffle();
    }
    for (int64_t i = 0; i < window; ++i, ++cursor_) {
      // A corpus shorter than a window repeats itself.
      *input++ = stream_[static_cast<size_t>(cursor_ % tokens_)];
      *target++ = stream_[static_cast<size_t>((cursor_ + 1) % tokens_)];
    }
  }
  return batch;
}

}  // namespace millrace
