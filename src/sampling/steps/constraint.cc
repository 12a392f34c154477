// Keeps the tokens with which the answer still fits its grammar, and the end of generation where it may end. After the
// steps that edit logits and before those that narrow them, so that these see what is possible alone. Where the grammar
// meets one of the matcher's bounds the stream ends with an error: what it allows is not known any more.
#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <string>

#include "sampling/steps/factories.h"

namespace millrace {
namespace {

constexpr size_t kFew = 4096;  // tokens that are taken out of the row instead of the others being struck from it

class ConstraintStep final : public SamplerStep {
 public:
  ConstraintStep(const CompiledGrammar& grammar, std::vector<TokenId> ends)
      : matcher_(grammar), ends_(std::move(ends)), bits_(matcher_.words()) {}

  void apply(SamplingRow& row) override {
    started_ = true;
    size_t count = ended_ || failure_ ? 0 : matcher_.mask(bits_);
    note_bounds();
    if (failure_) return row.keep_tokens({});
    if (ended_) std::fill(bits_.begin(), bits_.end(), 0);
    if (ended_ || matcher_.complete()) {
      for (TokenId token : ends_) bits_[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
      count += ends_.size();
    }
    if (count <= kFew) {
      keep(row, count);
    } else {
      strike(row.logits());
    }
  }

  void accept(TokenId token) override {
    if (!started_ || ended_ || failure_) return;  // of the prompt, or behind the end
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

  void keep(SamplingRow& row, size_t count) {
    kept_.clear();
    kept_.reserve(count);
    for (size_t word = 0; word < bits_.size(); ++word)
      for (uint64_t left = bits_[word]; left != 0; left &= left - 1)
        kept_.push_back(static_cast<TokenId>(word * 64 + static_cast<size_t>(std::countr_zero(left))));
    row.keep_tokens(kept_);
  }

  // Sixty-four at a time: nothing, the struck ones one by one, or all of them but the kept ones.
  void strike(std::span<float> logits) const {
    constexpr float kNone = -std::numeric_limits<float>::infinity();
    for (size_t at = 0; at < logits.size(); at += 64) {
      const uint64_t bits = at / 64 < bits_.size() ? bits_[at / 64] : 0;  // rows may be wider than the vocabulary
      const size_t count = std::min<size_t>(64, logits.size() - at);
      float* row = logits.data() + at;
      if (bits == ~uint64_t{0}) continue;
      if (std::popcount(bits) < 32) {
        float before[64];
        std::copy_n(row, count, before);
        std::fill_n(row, count, kNone);
        for (uint64_t left = bits; left != 0; left &= left - 1) row[std::countr_zero(left)] = before[std::countr_zero(left)];
        continue;
      }
      for (uint64_t left = ~bits; left != 0; left &= left - 1)
        if (const auto struck = static_cast<size_t>(std::countr_zero(left)); struck < count) row[struck] = kNone;
    }
  }

  GrammarMatcher matcher_;
  std::vector<TokenId> ends_;
  std::vector<uint64_t> bits_;
  std::vector<TokenId> kept_;
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
