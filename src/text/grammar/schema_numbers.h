// Numeric bounds and multipleOf, as automata over decimal digits. Restricted numbers are written without an exponent.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/grammar/dfa.h"
#include "text/grammar/json_rules.h"

namespace millrace {

// A decimal number: the sign, integer digits without leading zeros ("0" for zero), and fraction digits without trailing
// zeros.
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
  bool integer = false, fraction = false;             // integer: only integers; fraction: only non-integers
  std::vector<Bound> least, most;                     // lower and upper bounds; all must hold
  std::vector<Decimal> multiple_of, not_multiple_of;  // positive
  std::vector<Decimal> excluded;                      // single numbers that are not allowed
  bool free() const {
    return !fraction && least.empty() && most.empty() && multiple_of.empty() && not_multiple_of.empty() &&
           excluded.empty();
  }
};

// Errors: unsupported (too many states).
Result<Dfa> number_dfa(const NumberBounds& bounds, const GrammarLimits& limits, std::string_view what);

}  // namespace millrace
