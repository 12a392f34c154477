#include "server/wait_estimate.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr double kMemory = 0.9;           // how much of a mean stays when another answer has ended
constexpr int64_t kLeastPrompt = 8;       // tokens computed, of a prompt whose speed says something

void learn(double& mean, double seen) { mean = mean == 0 ? seen : kMemory * mean + (1 - kMemory) * seen; }

}  // namespace

double WaitEstimate::place() const {
  const int64_t turns = open_ - places_ + 1;
  if (turns <= 0) return 0;
  return static_cast<double>(turns) * answer_tokens_ * step_seconds_ / static_cast<double>(places_);
}

double WaitEstimate::place_seconds() const {
  std::lock_guard lock(mutex_);
  return place();
}

double WaitEstimate::first_token_seconds(int64_t prompt_tokens) const {
  std::lock_guard lock(mutex_);
  if (measured_ == 0) return 0;
  return place() + static_cast<double>(prompt_tokens_ + prompt_tokens) * prompt_token_seconds_ + step_seconds_;
}

WaitEntry::WaitEntry(std::shared_ptr<WaitEstimate> estimate, int64_t prompt_tokens, int64_t answers)
    : estimate_(std::move(estimate)), prompt_tokens_(prompt_tokens), answers_(answers) {
  std::lock_guard lock(estimate_->mutex_);
  estimate_->open_ += answers_;
  estimate_->prompt_tokens_ += prompt_tokens_;
}

WaitEntry::~WaitEntry() {
  std::lock_guard lock(estimate_->mutex_);
  estimate_->open_ -= answers_;
  estimate_->prompt_tokens_ -= prompt_tokens_;
}

void WaitEntry::prompt_done(int64_t tokens) {
  tokens = std::min(tokens, prompt_tokens_);
  std::lock_guard lock(estimate_->mutex_);
  prompt_tokens_ -= tokens;
  estimate_->prompt_tokens_ -= tokens;
}

void WaitEntry::answer_done(const RequestTimings& t) {
  std::lock_guard lock(estimate_->mutex_);
  if (answers_ > 0) {
    --answers_;
    --estimate_->open_;
  }
  if (t.generated_tokens < 1) return;
  ++estimate_->measured_;
  learn(estimate_->answer_tokens_, static_cast<double>(t.generated_tokens));
  if (t.generated_tokens > 1) learn(estimate_->step_seconds_, t.decode_seconds / static_cast<double>(t.generated_tokens - 1));
  const int64_t computed = t.prompt_tokens - t.cached_tokens;
  if (computed >= kLeastPrompt) learn(estimate_->prompt_token_seconds_, t.prefill_seconds / static_cast<double>(computed));
}

}  // namespace millrace
