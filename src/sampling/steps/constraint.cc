// Keeps the tokens that the answer's grammar allows, and the end of generation where the grammar may end. Runs after
// the steps that edit logits and before those that truncate, so that these see only possible tokens. If the matcher
// exceeds one of its limits the stream ends with an error: the allowed tokens are no longer known.
#include <algorithm>
#include <optional>
#include <string>

#include "sampling/steps/factories.h"

namespace millrace {
namespace {

class ConstraintStep final : public SamplerStep {
 public:
  ConstraintStep(const CompiledGrammar& grammar, std::vector<TokenId> ends)
      : matcher_(grammar), ends_(std::move(ends)), bits_(matcher_.words()) {}

  void apply(SamplingRow& row) override {
    started_ = true;
    if (!ended_ && !failure_) matcher_.mask(bits_);
    note_bounds();
    if (ended_ || failure_) std::ranges::fill(bits_, 0);
    if (!failure_ && (ended_ || matcher_.complete()))
      for (TokenId token : ends_) bits_[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
    row.keep_bits(bits_);
  }

  void accept(TokenId token) override {
    if (!started_ || ended_ || failure_) return;  // a prompt token, or after the end
    if (matcher_.accept(token)) return;
    note_bounds();
    ended_ = !failure_;
  }

  void reset() override {
    matcher_.reset();
    failure_.reset();
    started_ = ended_ = false;
  }
  bool ended() const override { return started_ && !failure_ && (ended_ || matcher_.exhausted()); }
  const Error* failure() const override { return failure_ ? &*failure_ : nullptr; }
  std::unique_ptr<SamplerStep> clone() const override { return std::make_unique<ConstraintStep>(*this); }

 private:
  void note_bounds() {
    if (failure_ || matcher_.exceeded() == ParseBound::none) return;
    failure_ = Error::unsupported(std::string("constraint: ") + parse_bound_reason(matcher_.exceeded()));
  }

  GrammarMatcher matcher_;
  std::vector<TokenId> ends_;
  std::vector<uint64_t> bits_;
  bool started_ = false;  // the prompt's tokens come before the first apply()
  bool ended_ = false;
  std::optional<Error> failure_;
};

}  // namespace

std::unique_ptr<SamplerStep> make_constraint(const SamplerSetup& setup) {
  if (!setup.grammar) return nullptr;
  std::vector<TokenId> ends;
  for (TokenId token : setup.end_of_generation)
    if (token >= 0 && token < setup.grammar->masks->trie().vocab_size()) ends.push_back(token);
  return std::make_unique<ConstraintStep>(*setup.grammar, std::move(ends));
}

}  // namespace millrace
