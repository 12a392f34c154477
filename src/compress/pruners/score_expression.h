// ScoreExpression: a formula for a weight's score, from the weight's magnitude W and the size G of its gradient, for
// example W*W*mms(G). It is stored in postfix order, so every subexpression is a run of symbols that ends with its
// root. Immutable.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

enum class ScoreSymbol : uint8_t { w, g, add, sub, mul, div, sqr, sqrt, log, exp, mms, zsn };

class ScoreExpression {
 public:
  static constexpr int64_t kMaxSymbols = 64;

  // Parses a formula of W, G, + - * /, parentheses, and the functions sqr, sqrt, log, exp, mms (scales the range to 0
  // to 1) and zsn (subtracts the mean and divides by the standard deviation). Errors: user.
  static Result<ScoreExpression> parse(std::string_view text);
  // Returns a random expression with at most `depth` operations above each W and G.
  static ScoreExpression random(int depth, std::mt19937_64& engine);

  const std::vector<ScoreSymbol>& symbols() const { return symbols_; }
  std::string text() const;
  // Return a copy in which one subexpression is replaced: by a random one (mutated) or by one of `other` (crossed). If
  // the result would be too long, the copy is unchanged.
  ScoreExpression mutated(std::mt19937_64& engine) const;
  ScoreExpression crossed(const ScoreExpression& other, std::mt19937_64& engine) const;

  // Returns the scores of `weights`, with W their magnitudes and G the `gradients`. Functions that need a positive
  // argument use its magnitude; all results are finite.
  std::vector<double> scores(const std::vector<float>& weights, const std::vector<double>& gradients) const;
  // Returns the maximum number of values for each weight that scores() holds at once.
  int64_t values_held() const;

 private:
  explicit ScoreExpression(std::vector<ScoreSymbol> symbols);
  // Returns the index of the first symbol of the subexpression that ends at `root`.
  size_t begin_of(size_t root) const;

  std::vector<ScoreSymbol> symbols_;
};

}  // namespace millrace
