// Keeps the tokens that the answer's grammar allows, and the end of generation where the grammar may end. Runs after
// the steps that edit logits and before those that truncate, so that these see only possible tokens. If the matcher
// exceeds one of its limits the stream ends with an error: the allowed tokens are no longer known.
//
// An ambiguous grammar can make the mask of the next token and the parse of the last one slow: prepare() does both in
// pieces, and deferred() lets another thread finish them.
#include <algorithm>
#include <limits>
#include <mutex>
#include <optional>
#include <string>

#include "sampling/mask_units.h"
#include "sampling/steps/factories.h"

namespace millrace {
namespace {

constexpr int64_t kAllUnits = std::numeric_limits<int64_t>::max();

class ConstraintWork final : public DeferredWork {
 public:
  ConstraintWork(const CompiledGrammar& grammar, std::vector<TokenId> ends)
      : matcher_(grammar, false), ends_(std::move(ends)), bits_(matcher_.words()) {}
  ConstraintWork(const ConstraintWork& other) : ConstraintWork(other, std::lock_guard(other.mutex_)) {}

  bool run(int64_t units) override {
    std::lock_guard lock(mutex_);
    if (ready()) return true;
    matcher_.set_slice(units);
    return units > 0 && parse() && mask();
  }

  void apply(SamplingRow& row) {
    std::lock_guard lock(mutex_);
    started_ = true;
    matcher_.set_slice(kAllUnits);
    parse();
    mask();
    if (ended_ || failure_) std::ranges::fill(bits_, 0);
    if (!failure_ && (ended_ || matcher_.complete()))
      for (TokenId token : ends_) bits_[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
    row.keep_bits(bits_);
  }

  void accept(TokenId token) {
    std::lock_guard lock(mutex_);
    if (!started_) return;  // a prompt token
    matcher_.set_slice(kAllUnits);
    parse();
    if (ended_ || failure_) return;
    token_ = token;
    masked_ = false;
    matcher_.set_slice(mask_units().own);
    parse();
  }

  void reset() {
    std::lock_guard lock(mutex_);
    matcher_.set_slice(kAllUnits);
    matcher_.reset();
    failure_.reset();
    token_.reset();
    started_ = ended_ = masked_ = false;
  }
  bool ended() const {
    std::lock_guard lock(mutex_);
    return started_ && !token_ && !failure_ && (ended_ || matcher_.exhausted());
  }
  bool settled() const {
    std::lock_guard lock(mutex_);
    return !token_;
  }
  const Error* failure() const { return failure_ ? &*failure_ : nullptr; }
  size_t bytes() const {
    std::lock_guard lock(mutex_);
    return matcher_.bytes();
  }

 private:
  ConstraintWork(const ConstraintWork& other, const std::lock_guard<std::mutex>& /*locked*/)
      : matcher_(other.matcher_),
        ends_(other.ends_),
        bits_(other.bits_),
        token_(other.token_),
        masked_(other.masked_),
        started_(other.started_),
        ended_(other.ended_),
        failure_(other.failure_) {}

  // Whether apply() has nothing to compute. After the end, no mask is needed unless it is asked for.
  bool ready() const { return !token_ && (masked_ || ended_ || failure_ || (started_ && matcher_.exhausted())); }

  // Both return false if there is more to do than the matcher's slice of work.
  bool parse() {
    if (!token_) return true;
    const bool accepted = matcher_.accept(*token_);
    if (matcher_.paused()) return false;
    token_.reset();
    if (accepted) return true;
    note_bounds();
    ended_ = !failure_;
    return true;
  }
  bool mask() {
    if (masked_ || ended_ || failure_) return true;
    matcher_.mask(bits_);
    if (matcher_.paused()) return false;
    masked_ = true;
    note_bounds();
    return true;
  }
  void note_bounds() {
    if (failure_ || matcher_.exceeded() == ParseBound::none) return;
    failure_ = Error::unsupported(std::string("constraint: ") + parse_bound_reason(matcher_.exceeded()));
  }

  mutable std::mutex mutex_;
  GrammarMatcher matcher_;
  std::vector<TokenId> ends_;
  std::vector<uint64_t> bits_;
  std::optional<TokenId> token_;  // accepted, not yet parsed
  bool masked_ = false;           // bits_ is the mask of the next token
  bool started_ = false;          // the prompt's tokens come before the first apply()
  bool ended_ = false;
  std::optional<Error> failure_;
};

class ConstraintStep final : public SamplerStep {
 public:
  explicit ConstraintStep(std::shared_ptr<ConstraintWork> work) : work_(std::move(work)) {}

  void apply(SamplingRow& row) override { work_->apply(row); }
  bool prepare(int64_t units) override { return work_->run(units); }
  bool settled() const override { return work_->settled(); }
  std::shared_ptr<DeferredWork> deferred() override { return work_->run(0) ? nullptr : work_; }
  void accept(TokenId token) override { work_->accept(token); }
  void reset() override { work_->reset(); }
  bool ended() const override { return work_->ended(); }
  const Error* failure() const override { return work_->failure(); }
  size_t bytes() const override { return work_->bytes(); }
  std::unique_ptr<SamplerStep> clone() const override {
    return std::make_unique<ConstraintStep>(std::make_shared<ConstraintWork>(*work_));
  }

 private:
  std::shared_ptr<ConstraintWork> work_;  // which a thread may finish after the stream's end
};

}  // namespace

std::unique_ptr<SamplerStep> make_constraint(const SamplerSetup& setup) {
  if (!setup.grammar) return nullptr;
  std::vector<TokenId> ends;
  for (TokenId token : setup.end_of_generation)
    if (token >= 0 && token < setup.grammar->masks->trie().vocab_size()) ends.push_back(token);
  return std::make_unique<ConstraintStep>(std::make_shared<ConstraintWork>(*setup.grammar, std::move(ends)));
}

}  // namespace millrace
