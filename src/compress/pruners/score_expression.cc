#include "compress/pruners/score_expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <utility>

namespace millrace {
namespace {

using Symbol = ScoreSymbol;

constexpr int64_t kMaxSearched = 31;  // symbols of an expression that is changed at random
constexpr double kMin = 1e-30;        // for logarithms and divisions
constexpr double kMax = 1e100;

constexpr std::array<std::pair<std::string_view, Symbol>, 6> kFunctions = {{{"sqr", Symbol::sqr},
                                                                            {"sqrt", Symbol::sqrt},
                                                                            {"log", Symbol::log},
                                                                            {"exp", Symbol::exp},
                                                                            {"mms", Symbol::mms},
                                                                            {"zsn", Symbol::zsn}}};

int inputs_of(Symbol symbol) {
  if (symbol == Symbol::w || symbol == Symbol::g) return 0;
  return symbol == Symbol::add || symbol == Symbol::sub || symbol == Symbol::mul || symbol == Symbol::div ? 2 : 1;
}

// Whether the second function undoes the first.
bool opposite(Symbol first, Symbol second) {
  constexpr std::array<std::pair<Symbol, Symbol>, 6> kPairs = {{{Symbol::sqr, Symbol::sqrt},
                                                                {Symbol::sqrt, Symbol::sqr},
                                                                {Symbol::log, Symbol::exp},
                                                                {Symbol::exp, Symbol::log},
                                                                {Symbol::mms, Symbol::mms},
                                                                {Symbol::zsn, Symbol::zsn}}};
  return std::ranges::find(kPairs, std::pair(first, second)) != kPairs.end();
}

// sum = product {(+ | -) product}; product = factor {(* | /) factor}; factor = W | G | function(sum) | (sum)
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<std::vector<Symbol>> run() {
    MILLRACE_TRY_VOID(sum(0));
    if (at_ < text_.size()) return wrong("an operator");
    return std::move(out_);
  }

 private:
  Error wrong(std::string_view expected) const {
    return Error::user(fmt::format("metric '{}': expected {} at character {}", text_, expected, at_ + 1));
  }
  bool take(char c) {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  Result<void> sum(int depth) {
    MILLRACE_TRY_VOID(product(depth));
    while (true) {
      const Symbol symbol = take('+') ? Symbol::add : take('-') ? Symbol::sub : Symbol::w;
      if (symbol == Symbol::w) return {};
      MILLRACE_TRY_VOID(product(depth));
      MILLRACE_TRY_VOID(put(symbol));
    }
  }

  Result<void> product(int depth) {
    MILLRACE_TRY_VOID(factor(depth));
    while (true) {
      const Symbol symbol = take('*') ? Symbol::mul : take('/') ? Symbol::div : Symbol::w;
      if (symbol == Symbol::w) return {};
      MILLRACE_TRY_VOID(factor(depth));
      MILLRACE_TRY_VOID(put(symbol));
    }
  }

  Result<void> factor(int depth) {
    if (depth >= ScoreExpression::kMaxSymbols) return wrong("fewer parentheses");
    if (take('W')) return put(Symbol::w);
    if (take('G')) return put(Symbol::g);
    size_t end = at_;
    while (end < text_.size() && std::islower(static_cast<unsigned char>(text_[end]))) ++end;
    const auto* const known =
        std::ranges::find(kFunctions, text_.substr(at_, end - at_), &std::pair<std::string_view, Symbol>::first);
    if (known != kFunctions.end())
      at_ = end;
    else if (end > at_)
      return wrong("one of sqr, sqrt, log, exp, mms, zsn");
    if (!take('(')) return wrong(known != kFunctions.end() ? "(" : "W, G, a function or (");
    MILLRACE_TRY_VOID(sum(depth + 1));
    if (!take(')')) return wrong("an operator or )");
    return known != kFunctions.end() ? put(known->second) : Result<void>();
  }

  Result<void> put(Symbol symbol) {
    out_.push_back(symbol);
    if (std::ssize(out_) > ScoreExpression::kMaxSymbols)
      return Error::user(
          fmt::format("metric: has more than {} symbols; give a shorter one", ScoreExpression::kMaxSymbols));
    return {};
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<Symbol> out_;
};

void grow(int depth, std::mt19937_64& engine, std::vector<Symbol>& out) {
  if (depth == 0 || engine() % 4 == 0) return out.push_back(engine() % 2 == 0 ? Symbol::w : Symbol::g);
  if (engine() % 2 == 0) {
    grow(depth - 1, engine, out);
    const Symbol function = kFunctions[engine() % kFunctions.size()].second;
    if (!opposite(out.back(), function)) out.push_back(function);
    return;
  }
  grow(depth - 1, engine, out);
  grow(depth - 1, engine, out);
  constexpr std::array<Symbol, 4> kOperators = {Symbol::add, Symbol::sub, Symbol::mul, Symbol::div};
  out.push_back(kOperators[engine() % kOperators.size()]);
}

double applied(Symbol symbol, double a, double b) {
  double out = a;
  if (symbol == Symbol::add) out = a + b;
  if (symbol == Symbol::sub) out = a - b;
  if (symbol == Symbol::mul) out = a * b;
  if (symbol == Symbol::div) out = std::fabs(b) < kMin ? 0 : a / b;
  if (symbol == Symbol::sqr) out = a * a;
  if (symbol == Symbol::sqrt) out = std::sqrt(std::fabs(a));
  if (symbol == Symbol::log) out = std::log(std::max(std::fabs(a), kMin));
  if (symbol == Symbol::exp) out = std::exp(std::min(a, 200.0));
  return std::clamp(out, -kMax, kMax);
}

// Less the mean over the deviation, or less the least over the range; zeros where all are the same.
void normalize(Symbol symbol, std::vector<double>& values) {
  double shift = 0, size = 0;
  if (symbol == Symbol::mms) {
    const auto [least, most] = std::ranges::minmax(values);
    shift = least;
    size = most - least;
  } else {
    double most = 0, squares = 0;
    for (double value : values) shift += value / static_cast<double>(values.size());
    for (double value : values) most = std::max(most, std::fabs(value - shift));
    for (double value : values) squares += most > 0 ? std::pow((value - shift) / most, 2) : 0;
    size = most * std::sqrt(squares / static_cast<double>(values.size()));
  }
  for (double& value : values) value = size > 0 ? std::clamp((value - shift) / size, -kMax, kMax) : 0;
}

}  // namespace

ScoreExpression::ScoreExpression(std::vector<ScoreSymbol> symbols) : symbols_(std::move(symbols)) {}

Result<ScoreExpression> ScoreExpression::parse(std::string_view text) {
  MILLRACE_TRY(auto symbols, Parser(text).run());
  return ScoreExpression(std::move(symbols));
}

ScoreExpression ScoreExpression::random(int depth, std::mt19937_64& engine) {
  std::vector<Symbol> out;
  grow(depth, engine, out);
  return ScoreExpression(std::move(out));
}

std::string ScoreExpression::text() const {
  std::vector<std::string> stack;
  for (Symbol symbol : symbols_) {
    if (inputs_of(symbol) == 0) {
      stack.emplace_back(symbol == Symbol::w ? "W" : "G");
    } else if (inputs_of(symbol) == 1) {
      const auto* const known = std::ranges::find(kFunctions, symbol, &std::pair<std::string_view, Symbol>::second);
      stack.back() = fmt::format("{}({})", known->first, stack.back());
    } else {
      const char sign = "+-*/"[static_cast<int>(symbol) - static_cast<int>(Symbol::add)];
      const std::string right = std::move(stack.back());
      stack.pop_back();
      stack.back() = fmt::format("({}{}{})", stack.back(), sign, right);
    }
  }
  return stack.back();
}

size_t ScoreExpression::begin_of(size_t root) const {
  int wanted = 1;
  for (size_t i = root + 1; i-- > 0;) {
    wanted += inputs_of(symbols_[i]) - 1;
    if (wanted == 0) return i;
  }
  return 0;
}

ScoreExpression ScoreExpression::crossed(const ScoreExpression& other, std::mt19937_64& engine) const {
  const size_t root = engine() % symbols_.size(), begin = begin_of(root);
  const size_t other_root = engine() % other.symbols_.size(), other_begin = other.begin_of(other_root);
  std::vector<Symbol> out(symbols_.begin(), symbols_.begin() + static_cast<std::ptrdiff_t>(begin));
  out.insert(out.end(), other.symbols_.begin() + static_cast<std::ptrdiff_t>(other_begin),
             other.symbols_.begin() + static_cast<std::ptrdiff_t>(other_root + 1));
  size_t next = root + 1;
  if (next < symbols_.size() && opposite(out.back(), symbols_[next])) ++next;  // one of the two is enough
  out.insert(out.end(), symbols_.begin() + static_cast<std::ptrdiff_t>(next), symbols_.end());
  return std::ssize(out) > kMaxSearched ? *this : ScoreExpression(std::move(out));
}

ScoreExpression ScoreExpression::mutated(std::mt19937_64& engine) const { return crossed(random(2, engine), engine); }

std::vector<double> ScoreExpression::scores(const std::vector<float>& weights,
                                            const std::vector<double>& gradients) const {
  std::vector<std::vector<double>> stack;
  for (Symbol symbol : symbols_) {
    if (inputs_of(symbol) == 0) {
      auto& values = stack.emplace_back(weights.size());
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = symbol == Symbol::w ? std::fabs(static_cast<double>(weights[i])) : gradients[i % gradients.size()];
    } else if (symbol == Symbol::mms || symbol == Symbol::zsn) {
      normalize(symbol, stack.back());
    } else if (inputs_of(symbol) == 1) {
      for (double& value : stack.back()) value = applied(symbol, value, 0);
    } else {
      const std::vector<double> right = std::move(stack.back());
      stack.pop_back();
      for (size_t i = 0; i < right.size(); ++i) stack.back()[i] = applied(symbol, stack.back()[i], right[i]);
    }
  }
  return std::move(stack.back());
}

int64_t ScoreExpression::values_held() const {
  int64_t held = 0, most = 0;
  for (Symbol symbol : symbols_) {
    held += 1 - inputs_of(symbol);
    most = std::max(most, held);
  }
  return most;
}

}  // namespace millrace
