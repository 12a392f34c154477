// Numbers within bounds, and multiples, as automata over their decimal digits. Where a number has either it is written
// without an exponent.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/grammar/dfa.h"
#include "text/grammar/json_rules.h"

namespace millrace {

// A number as JSON writes it, digit by digit: sign, digits before the point ("0" or without leading zeros), digits
// behind it without trailing zeros.
struct Decimal {
  bool negative = false;
  std::string whole = "0", fraction;
  bool zero() const { return whole == "0" && fraction.empty(); }
};
std::optional<Decimal> to_decimal(const SchemaJson& number);

struct NumberBounds {
  struct Bound {
    Decimal value;
    bool exclusive = false;
  };
  bool integer = false, fraction = false;             // nothing else
  std::vector<Bound> least, most;                     // all of them hold
  std::vector<Decimal> multiple_of, not_multiple_of;  // above 0
  std::vector<Decimal> excluded;                      // single numbers
  bool free() const {
    return !fraction && least.empty() && most.empty() && multiple_of.empty() && not_multiple_of.empty() &&
           excluded.empty();
  }
};

// Errors: unsupported (too many states).
Result<Dfa> number_dfa(const NumberBounds& bounds, const GrammarLimits& limits, std::string_view what);

}  // namespace millrace
