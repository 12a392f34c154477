#include "sampling/chain.h"

#include <algorithm>

#include "sampling/schema.h"

namespace millrace {

Result<SamplerChain> SamplerChain::create(const SamplerSetup& setup) {
  MILLRACE_TRY_VOID(validate(setup.options, setup.vocab_size));
  SamplerChain chain;
  chain.seed_ = setup.options.seed;
  for (const auto& entry : samplers().entries()) {
    if (auto step = entry.member(setup)) chain.steps_.push_back(std::move(step));
  }
  return chain;
}

SamplerChain SamplerChain::clone() const {
  SamplerChain copy;
  copy.seed_ = seed_;
  for (const auto& step : steps_) copy.steps_.push_back(step->clone());
  return copy;
}

void SamplerChain::apply(std::span<float> logits, int64_t position, SamplingRow& row) {
  row.begin(logits, seed_, position);
  for (auto& step : steps_) step->apply(row);
}

Result<void> SamplerChain::distribution(std::span<float> logits, int64_t position, SamplingRow& row) {
  apply(logits, position, row);
  for (const auto& step : steps_)
    if (const Error* failure = step->failure()) return *failure;
  return {};
}

Result<TokenId> SamplerChain::sample(std::span<float> logits, int64_t position, SamplingRow& row) {
  MILLRACE_TRY_VOID(distribution(logits, position, row));
  return draw(row);
}

void SamplerChain::accept(TokenId token) {
  for (auto& step : steps_) step->accept(token);
}

bool SamplerChain::prepare(int64_t units) {
  return std::ranges::all_of(steps_, [&](const auto& step) { return step->prepare(units); });
}

bool SamplerChain::settled() const {
  return std::ranges::all_of(steps_, [](const auto& step) { return step->settled(); });
}

std::shared_ptr<DeferredWork> SamplerChain::deferred() {
  for (auto& step : steps_)
    if (auto work = step->deferred()) return work;
  return nullptr;
}

size_t SamplerChain::bytes() const {
  size_t bytes = 0;
  for (const auto& step : steps_) bytes += step->bytes();
  return bytes;
}

void SamplerChain::reset() {
  for (auto& step : steps_) step->reset();
}

bool SamplerChain::ended() const {
  for (const auto& step : steps_)
    if (step->ended()) return true;
  return false;
}

Result<TokenId> draw(SamplingRow& row) { return draw(row, row.uniform(RandomStream::token)); }

Result<TokenId> draw(SamplingRow& row, double uniform) {
  if (const TokenId token = row.draw_estimated(uniform); token >= 0) return token;
  const auto& list = row.candidates();
  if (list.empty()) {
    return Error::user(
        "sampling: no token is left to choose from: the allowed and banned tokens and what the answer is held to have "
        "none in common, or the model's logits "
        "are not finite");
  }
  if (list.size() == 1) return list.front().token;
  Softmax softmax = row.softmax();
  double target = uniform * softmax.total;
  double cumulated = 0;
  const Candidate* last = nullptr;  // the last one with nonzero probability, for rounding at the end of the sum
  for (size_t i = 0; i < list.size(); ++i) {
    const double weight = row.weights()[i];
    if (weight > 0) last = &list[i];
    cumulated += weight;
    if (cumulated > target) return list[i].token;
  }
  return last->token;
}

}  // namespace millrace
