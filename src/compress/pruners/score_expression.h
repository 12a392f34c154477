// ScoreExpression: a weight's score as a formula of its magnitude W and of the size G of its gradient, such as
// W*W*mms(G). Stored in postfix order, so that every subexpression is a run of symbols that ends with its root.
// Immutable once made; pure.
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

  // W, G, + - * /, parentheses, and the functions sqr, sqrt, log, exp, mms (the range scaled to 0 to 1) and zsn (the
  // mean subtracted, divided by the standard deviation). Errors: user.
  static Result<ScoreExpression> parse(std::string_view text);
  // A random expression with at most `depth` operations above each W and G.
  static ScoreExpression random(int depth, std::mt19937_64& engine);

  const std::vector<ScoreSymbol>& symbols() const { return symbols_; }
  std::string text() const;
  // Returns the expression with a subexpression replaced by a random one, or by one of `other`; an unchanged copy if
  // the result would be too long.
  ScoreExpression mutated(std::mt19937_64& engine) const;
  ScoreExpression crossed(const ScoreExpression& other, std::mt19937_64& engine) const;

  // Scores of `weights`, whose magnitudes count, in rows of `gradients`. Functions use the magnitude where their
  // argument must be positive, and all results are finite.
  std::vector<double> scores(const std::vector<float>& weights, const std::vector<double>& gradients) const;
  // Values that are held at once, for each weight.
  int64_t values_held() const;

 private:
  explicit ScoreExpression(std::vector<ScoreSymbol> symbols);
  // The first symbol of the subexpression that ends at `root`.
  size_t begin_of(size_t root) const;

  std::vector<ScoreSymbol> symbols_;
};

}  // namespace millrace
