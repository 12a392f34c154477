#include "text/grammar/schema_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace millrace {
namespace {

constexpr uint32_t kMaxNumberDigits = 20;
constexpr int64_t kMaxMultiple = 10'000;
constexpr int64_t kMaxRemainders = 20'000;
constexpr int32_t kManyStates = 500;

// Compares the digits of non-negative numbers with a bound.
class Comparison {
 public:
  explicit Comparison(GrammarSpec& spec) : spec_(spec) {}

  // Numbers below the bound, and the bound itself unless `strict`.
  ExprId at_most(const Decimal& b, bool strict) {
    std::vector<ExprId> ways;
    if (b.whole.size() > 1) ways.push_back(spec_.sequence({shorter(b.whole.size() - 1), any_fraction()}));
    add_same_length(b, false, ways);
    std::vector<ExprId> ends;  // fractions allowed if the integer part equals that of the bound
    const std::string& f = b.fraction;
    if (!f.empty() || !strict) ends.push_back(spec_.bytes(""));
    if (f.empty() && !strict) ends.push_back(spec_.sequence({spec_.bytes("."), digits("0", 1)}));
    for (size_t i = 0; i < f.size(); ++i) {
      const std::string begin = "." + f.substr(0, i);
      if (f[i] > '0')
        ends.push_back(
            spec_.sequence({spec_.bytes(begin), digit('0', static_cast<char>(f[i] - 1)), digits("0123456789", 0)}));
      if (i > 0) ends.push_back(spec_.bytes(begin));
    }
    if (!f.empty() && !strict) ends.push_back(spec_.sequence({spec_.bytes("." + f), digits("0", 0)}));
    if (!ends.empty()) ways.push_back(spec_.sequence({spec_.bytes(b.whole), spec_.choice(std::move(ends))}));
    return spec_.choice(std::move(ways));
  }

  ExprId at_least(const Decimal& b, bool strict) {
    std::vector<ExprId> ways;
    if (b.whole.size() < kMaxNumberDigits) {
      ways.push_back(spec_.sequence({digit('1', '9'),
                                     spec_.repeat(digit('0', '9'), static_cast<uint32_t>(b.whole.size()), kNoLimit),
                                     any_fraction()}));
    }
    add_same_length(b, true, ways);
    std::vector<ExprId> ends;
    const std::string& f = b.fraction;
    const ExprId above = spec_.sequence({digits("0", 0), digit('1', '9'), digits("0123456789", 0)});
    for (size_t i = 0; i < f.size(); ++i)
      if (f[i] < '9')
        ends.push_back(spec_.sequence(
            {spec_.bytes("." + f.substr(0, i)), digit(static_cast<char>(f[i] + 1), '9'), digits("0123456789", 0)}));
    if (strict)
      ends.push_back(spec_.sequence({spec_.bytes("." + f), above}));
    else if (f.empty())
      ends.push_back(any_fraction());
    else
      ends.push_back(spec_.sequence({spec_.bytes("." + f), digits("0123456789", 0)}));
    ways.push_back(spec_.sequence({spec_.bytes(b.whole), spec_.choice(std::move(ends))}));
    return spec_.choice(std::move(ways));
  }

  ExprId any() {
    return spec_.sequence(
        {spec_.choice({spec_.bytes("0"), spec_.sequence({digit('1', '9'), digits("0123456789", 0)})}), any_fraction()});
  }

 private:
  ExprId digit(char first, char last) {
    std::string members;
    for (char c = first; c <= last; ++c) members += c;
    return spec_.byte_set(members);
  }
  ExprId digits(const char* members, uint32_t min) { return spec_.repeat(spec_.byte_set(members), min, kNoLimit); }
  ExprId any_fraction() { return spec_.optional(spec_.sequence({spec_.bytes("."), digits("0123456789", 1)})); }
  // Integer parts of at most `most` digits.
  ExprId shorter(size_t most) {
    most = std::min<size_t>(most, kMaxNumberDigits);
    return spec_.choice(
        {spec_.bytes("0"),
         spec_.sequence({digit('1', '9'), spec_.repeat(digit('0', '9'), 0, static_cast<uint32_t>(most - 1))})});
  }
  // Integer parts as long as that of the bound, on the requested side of it.
  void add_same_length(const Decimal& b, bool above, std::vector<ExprId>& ways) {
    const std::string& w = b.whole;
    for (size_t i = 0; i < w.size(); ++i) {
      const char lowest = i == 0 && w.size() > 1 ? '1' : '0';
      const char first = above ? static_cast<char>(w[i] + 1) : lowest, last = above ? '9' : static_cast<char>(w[i] - 1);
      if (first > last) continue;
      const auto rest = static_cast<uint32_t>(w.size() - i - 1);
      ways.push_back(spec_.sequence({spec_.bytes(w.substr(0, i)), digit(first, last),
                                     spec_.repeat(digit('0', '9'), rest, rest), any_fraction()}));
    }
  }

  GrammarSpec& spec_;
};

// Signed numbers on the requested side of a bound.
Result<Dfa> bound_dfa(const NumberBounds::Bound& bound, bool least, const GrammarLimits& limits,
                      std::string_view what) {
  GrammarSpec spec;
  Comparison compare(spec);
  const Decimal& b = bound.value;
  std::vector<ExprId> ways;  // non-negative numbers, then negative ones
  const ExprId minus = spec.bytes("-");
  const bool below_zero = b.negative && !b.zero();
  if (least) {
    ways.push_back(below_zero ? compare.any() : compare.at_least(b, bound.exclusive));
    if (below_zero || (b.zero() && !bound.exclusive))
      ways.push_back(spec.sequence({minus, compare.at_most(b, bound.exclusive)}));
  } else {
    if (!below_zero) ways.push_back(compare.at_most(b, bound.exclusive));
    const bool all = !below_zero && (!b.zero() || !bound.exclusive);
    ways.push_back(spec.sequence({minus, all ? compare.any() : compare.at_least(b, bound.exclusive)}));
  }
  return make_dfa(spec, spec.choice(ways), limits, what);
}

// Tracks the remainder digit by digit: with k fraction digits, number * 10^k must be a multiple of `step`.
Result<Dfa> multiple_dfa(const Decimal& of, std::string_view what) {
  const auto k = static_cast<int32_t>(of.fraction.size());
  const std::string digits = of.whole + of.fraction;
  int64_t step = 0;
  for (char c : digits)
    if ((step = step * 10 + (c - '0')) > kMaxMultiple)
      return Error::unsupported(fmt::format("{}: multipleOf has too many digits", what));
  if ((k + 2) * step > 20'000) return Error::unsupported(fmt::format("{}: multipleOf has too many digits", what));
  const auto p = static_cast<int32_t>(step);
  // States: 0 start, 1 after the sign, 2 + r in the integer part, then p for each fraction digit, last: the end.
  const auto whole = [](int32_t r) { return 2 + r; };
  const auto behind = [&](int32_t place, int32_t r) { return 2 + p * place + r; };  // place 1..k
  const int32_t point = 2 + p * (k + 1), zeros = point + p;                         // after the point; zeros beyond k
  Dfa dfa;
  dfa.classes = 13;  // other, 0..9, -, .
  for (int c = '0'; c <= '9'; ++c) dfa.class_of[static_cast<size_t>(c)] = static_cast<uint8_t>(c - '0' + 1);
  dfa.class_of['-'] = 11;
  dfa.class_of['.'] = 12;
  const int32_t states = zeros + 1;
  dfa.next.assign(static_cast<size_t>(states) * 13, -1);
  dfa.accepting.assign(static_cast<size_t>(states), 0);
  dfa.ticks.assign(static_cast<size_t>(states), 0);
  dfa.calls.resize(static_cast<size_t>(states));
  const auto set = [&](int32_t from, int32_t c, int32_t to) {
    dfa.next[static_cast<size_t>(from) * 13 + static_cast<size_t>(c)] = to;
  };
  const auto divides = [&](int32_t r, int32_t place) {
    int64_t value = r;
    for (int32_t i = place; i < k; ++i) value = value * 10 % p;
    return value % p == 0;
  };
  for (int32_t d = 0; d < 10; ++d) {
    set(0, d + 1, whole(d % p));
    set(1, d + 1, whole(d % p));
    for (int32_t r = 0; r < p; ++r) {
      const int32_t next = static_cast<int32_t>((int64_t{r} * 10 + d) % p);
      set(whole(r), d + 1, whole(next));
      if (k > 0)
        set(point + r, d + 1, behind(1, next));
      else if (d == 0 && divides(r, 0))
        set(point + r, d + 1, zeros);
      for (int32_t place = 1; place < k; ++place) set(behind(place, r), d + 1, behind(place + 1, next));
      if (k > 0 && d == 0 && divides(r, k)) set(behind(k, r), d + 1, zeros);
    }
  }
  set(0, 11, 1);
  set(zeros, 1, zeros);
  dfa.accepting[static_cast<size_t>(zeros)] = 1;
  for (int32_t r = 0; r < p; ++r) {
    set(whole(r), 12, point + r);
    dfa.accepting[static_cast<size_t>(whole(r))] = divides(r, 0);
    for (int32_t place = 1; place <= k; ++place)
      dfa.accepting[static_cast<size_t>(behind(place, r))] = divides(r, place);
  }
  return dfa;
}

// The value of a small integer, else nullopt.
std::optional<int64_t> small_whole(const Decimal& number) {
  if (!number.fraction.empty() || number.whole.size() > 6) return std::nullopt;
  return std::stoll(number.whole);
}

// Multiples of all of `of` and of none of `not_of`, which are integers. Tracks one remainder, modulo their least common
// multiple; nullopt if that is too large.
std::optional<Dfa> remainders_dfa(const std::vector<int64_t>& of, const std::vector<int64_t>& not_of) {
  int64_t p = 1;
  for (const auto* list : {&of, &not_of})
    for (int64_t step : *list)
      if ((p = std::lcm(p, step)) > kMaxRemainders) return std::nullopt;
  const auto kept = [&](int64_t r) {
    return std::ranges::all_of(of, [&](int64_t step) { return r % step == 0; }) &&
           std::ranges::none_of(not_of, [&](int64_t step) { return r % step == 0; });
  };
  // States: 0 start, 1 after the sign, 2 + r in the integer part. After the point: no digit yet or only zeros so far,
  // each for an accepted and a rejected integer part; and any other fraction.
  const auto whole = [](int64_t r) { return static_cast<int32_t>(2 + r); };
  const int32_t point = whole(p), zeros = point + 2, rest = point + 4;
  Dfa dfa;
  dfa.classes = 13;  // other, 0..9, -, .
  for (int c = '0'; c <= '9'; ++c) dfa.class_of[static_cast<size_t>(c)] = static_cast<uint8_t>(c - '0' + 1);
  dfa.class_of['-'] = 11;
  dfa.class_of['.'] = 12;
  const auto states = static_cast<size_t>(rest + 1);
  dfa.next.assign(states * 13, -1);
  dfa.accepting.assign(states, 0);
  dfa.ticks.assign(states, 0);
  dfa.calls.resize(states);
  const auto set = [&](int32_t from, int64_t c, int32_t to) {
    dfa.next[static_cast<size_t>(from) * 13 + static_cast<size_t>(c)] = to;
  };
  for (int64_t d = 0; d < 10; ++d) {
    for (const int32_t from : {0, 1}) set(from, d + 1, whole(d % p));
    for (int64_t r = 0; r < p; ++r) set(whole(r), d + 1, whole((r * 10 + d) % p));
    for (const int32_t bad : {0, 1})
      for (const int32_t from : {point + bad, zeros + bad}) set(from, d + 1, d == 0 ? zeros + bad : rest);
    set(rest, d + 1, rest);
  }
  set(0, 11, 1);
  for (int64_t r = 0; r < p; ++r) {
    dfa.accepting[static_cast<size_t>(whole(r))] = kept(r);
    set(whole(r), 12, point + (kept(r) ? 0 : 1));
  }
  dfa.accepting[static_cast<size_t>(zeros)] = 1;
  dfa.accepting[static_cast<size_t>(rest)] = of.empty();
  return dfa;
}

}  // namespace

std::optional<Decimal> to_decimal(const SchemaJson& number) {
  if (!number.is_number()) return std::nullopt;
  std::string text = number.dump();
  Decimal out;
  if (text.front() == '-') {
    out.negative = true;
    text.erase(0, 1);
  }
  const size_t e = text.find_first_of("eE");
  int exponent = e == std::string::npos ? 0 : std::stoi(text.substr(e + 1));
  text = text.substr(0, e);
  const size_t point = std::min(text.find('.'), text.size());
  std::string digits = text.substr(0, point);
  if (point < text.size()) digits += text.substr(point + 1);
  auto place = static_cast<int64_t>(point) + exponent;  // of the point among the digits
  if (place <= 0) {
    digits.insert(0, static_cast<size_t>(1 - place), '0');
    place = 1;
  }
  if (place > static_cast<int64_t>(digits.size())) digits.append(static_cast<size_t>(place) - digits.size(), '0');
  out.whole = digits.substr(0, static_cast<size_t>(place));
  out.fraction = digits.substr(static_cast<size_t>(place));
  out.whole.erase(0, std::min(out.whole.find_first_not_of('0'), out.whole.size() - 1));
  out.fraction.erase(out.fraction.find_last_not_of('0') + 1);
  return out;
}

Result<Dfa> number_dfa(const NumberBounds& bounds, const GrammarLimits& limits, std::string_view what) {
  std::vector<int64_t> of, not_of;
  const auto together = [](const std::vector<Decimal>& from, std::vector<int64_t>& to) {
    for (const Decimal& step : from)
      if (const auto value = small_whole(step)) to.push_back(*value);
  };
  together(bounds.multiple_of, of);
  together(bounds.not_multiple_of, not_of);
  const bool several = of.size() + not_of.size() == bounds.multiple_of.size() + bounds.not_multiple_of.size() &&
                       of.size() + not_of.size() > 1;
  const std::optional<Dfa> remainders = several ? remainders_dfa(of, not_of) : std::nullopt;
  GrammarSpec spec;
  JsonRules json(spec);
  ExprId all = json.integer();
  uint32_t digits = kMaxNumberDigits;
  if (remainders && remainders->size() > kManyStates) {  // limiting the digits as well would multiply the states
    const ExprId digit = spec.byte_set("0123456789");
    all = spec.sequence(
        {spec.optional(spec.bytes("-")),
         spec.choice({spec.bytes("0"), spec.sequence({spec.byte_set("123456789"), spec.repeat(digit, 0, kNoLimit)})})});
    digits = kNoLimit;
  }
  if (!bounds.integer) {
    const ExprId fraction = spec.sequence({spec.bytes("."), spec.repeat(spec.byte_set("0123456789"), 1, digits)});
    all = spec.sequence({all, spec.optional(fraction)});
  }
  MILLRACE_TRY(Dfa dfa, make_dfa(spec, all, limits, what));
  const auto narrow = [&](Result<Dfa> other, DfaProduct product) -> Result<void> {
    if (!other.ok()) return other.error();
    MILLRACE_TRY(dfa, combine(dfa, *other, product, limits, what));
    return {};
  };
  const DfaProduct both = DfaProduct::both, without = DfaProduct::first_only;
  for (const auto& bound : bounds.least) MILLRACE_TRY_VOID(narrow(bound_dfa(bound, true, limits, what), both));
  for (const auto& bound : bounds.most) MILLRACE_TRY_VOID(narrow(bound_dfa(bound, false, limits, what), both));
  if (bounds.fraction) {
    const ExprId zeros = spec.sequence({spec.bytes("."), spec.repeat(spec.byte_set("0"), 1, digits)});
    MILLRACE_TRY_VOID(
        narrow(make_dfa(spec, spec.sequence({json.integer(), spec.optional(zeros)}), limits, what), without));
  }
  for (const Decimal& value : bounds.excluded) {
    MILLRACE_TRY(const Dfa least, bound_dfa({value, false}, true, limits, what));
    MILLRACE_TRY(const Dfa most, bound_dfa({value, false}, false, limits, what));
    MILLRACE_TRY_VOID(narrow(combine(least, most, both, limits, what), without));
  }
  if (remainders) {
    MILLRACE_TRY_VOID(narrow(*remainders, both));
    return dfa;
  }
  for (const auto& step : bounds.multiple_of) MILLRACE_TRY_VOID(narrow(multiple_dfa(step, what), both));
  for (const auto& step : bounds.not_multiple_of) MILLRACE_TRY_VOID(narrow(multiple_dfa(step, what), without));
  return dfa;
}

}  // namespace millrace
