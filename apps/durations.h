// How every command reads a duration: a number of seconds, or one with a unit, as in 250ms, 90s, 5m and 1h.
#pragma once

#include <CLI/CLI.hpp>

namespace millrace {

// For ->transform(): the flag's value is then in seconds.
inline CLI::Validator as_seconds() {
  return CLI::AsNumberWithUnit(std::map<std::string, double>{{"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}},
                               CLI::AsNumberWithUnit::CASE_SENSITIVE, "SECONDS");
}

}  // namespace millrace
