#include "train/story_sampler.h"

#include <algorithm>
#include <numbers>
#include <random>

namespace millrace {
namespace {

torch::Tensor row_of(const std::vector<TokenId>& ids, size_t begin, size_t end) {
  std::vector<int64_t> wide(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                            ids.begin() + static_cast<std::ptrdiff_t>(end));
  return torch::tensor(wide, torch::kInt64).unsqueeze(0);
}

}  // namespace

double HeldOutScore::bits_per_byte() const {
  return bytes > 0 ? nats / std::numbers::ln2 / static_cast<double>(bytes) : 0.0;
}

HeldOutScore score_stories(StoryModel& model, BpeEncoder& encoder, const std::vector<std::string>& stories) {
  torch::NoGradGuard no_gradient;
  const bool was_training = model.is_training();
  model.eval();
  HeldOutScore score;
  for (const std::string& story : stories) {
    std::vector<TokenId> ids = encoder.encode(story);
    ids.insert(ids.begin(), kBosId);
    const bool cut = static_cast<int64_t>(ids.size()) > model.config().context + 1;
    if (cut) ids.resize(static_cast<size_t>(model.config().context) + 1);
    if (ids.size() < 2) continue;
    torch::Tensor logits = model.forward(row_of(ids, 0, ids.size() - 1));
    torch::Tensor targets = row_of(ids, 1, ids.size()).view({-1});
    namespace F = torch::nn::functional;
    score.nats += F::cross_entropy(logits, targets, F::CrossEntropyFuncOptions().reduction(torch::kSum)).item<double>();
    score.tokens += static_cast<int64_t>(ids.size()) - 1;
    score.bytes += static_cast<int64_t>(cut ? encoder.decode(ids).size() : story.size());
  }
  model.train(was_training);
  return score;
}

std::string sample_story(StoryModel& model, BpeEncoder& encoder, const std::string& prompt, int64_t max_tokens,
                         double temperature, uint64_t seed) {
  torch::NoGradGuard no_gradient;
  const bool was_training = model.is_training();
  model.eval();
  std::vector<TokenId> ids = encoder.encode(prompt);
  ids.insert(ids.begin(), kBosId);
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < max_tokens && static_cast<int64_t>(ids.size()) < model.config().context; ++i) {
    torch::Tensor logits = model.forward(row_of(ids, 0, ids.size())).select(0, static_cast<int64_t>(ids.size()) - 1);
    torch::Tensor shares = torch::softmax(logits.to(torch::kFloat64) / std::max(temperature, 1e-4), 0).cumsum(0);
    const double point = static_cast<double>(random() >> 11) * 0x1.0p-53;
    const double* bounds = shares.data_ptr<double>();
    const auto next = static_cast<TokenId>(std::upper_bound(bounds, bounds + shares.numel(), point) - bounds);
    if (next == kEosId || next >= shares.numel()) break;
    ids.push_back(next);
  }
  model.train(was_training);
  return encoder.decode(ids);
}

}  // namespace millrace
