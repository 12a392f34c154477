#include "server/generation/wait_estimate.h"

#include <algorithm>

#include "schedule/cost_model.h"

namespace millrace {
namespace {

constexpr double kMemory = 0.9;    // weight of the old mean in each update
constexpr int64_t kMinPrompt = 8;  // computed tokens from which a prompt's speed is meaningful

void learn(double& mean, double seen) { mean = mean == 0 ? seen : kMemory * mean + (1 - kMemory) * seen; }

}  // namespace

WaitEstimate::WaitEstimate(int64_t places, std::unique_ptr<const CostModel> cost, int64_t chunk)
    : cost_(std::move(cost)), chunk_(std::max<int64_t>(1, chunk)), places_(places) {}
WaitEstimate::~WaitEstimate() = default;

std::shared_ptr<WaitEstimate> WaitEstimate::of_engine(int64_t places, const std::string& cost_model, int64_t chunk) {
  if (cost_model.empty()) return std::make_shared<WaitEstimate>(places);
  auto cost = load_cost_model(cost_model);
  return std::make_shared<WaitEstimate>(places, cost.ok() ? std::move(*cost) : nullptr, chunk);
}

double WaitEstimate::step() const {
  if (!cost_) return step_seconds_;
  StepShape shape;
  for (int64_t i = std::min(open_ + 1, places_); i > 0; --i) shape.add(static_cast<int64_t>(answer_tokens_), 1, true);
  return cost_->step_seconds(shape);
}

double WaitEstimate::prompts(int64_t own_tokens) const {
  if (!cost_) return static_cast<double>(prompt_tokens_ + own_tokens) * prompt_token_seconds_;
  const double full = cost_->prefill_seconds(chunk_, chunk_);
  return cost_->prefill_seconds(own_tokens, chunk_) +
         static_cast<double>(prompt_tokens_) * full / static_cast<double>(chunk_);
}

double WaitEstimate::place() const {
  const int64_t turns = open_ - places_ + 1;
  if (turns <= 0) return 0;
  return static_cast<double>(turns) * answer_tokens_ * step() / static_cast<double>(places_);
}

double WaitEstimate::place_seconds() const {
  std::lock_guard lock(mutex_);
  return place();
}

double WaitEstimate::first_token_seconds(int64_t prompt_tokens) const {
  std::lock_guard lock(mutex_);
  if (measured_ == 0 && (!cost_ || open_ >= places_)) return 0;
  return place() + prompts(prompt_tokens) + step();
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
  if (t.generated_tokens > 1)
    learn(estimate_->step_seconds_, t.decode_seconds / static_cast<double>(t.generated_tokens - 1));
  const int64_t computed = t.prompt_tokens - t.cached_tokens;
  if (computed >= kMinPrompt)
    learn(estimate_->prompt_token_seconds_, t.prefill_seconds / static_cast<double>(computed));
}

}  // namespace millrace
