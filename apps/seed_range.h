// Checks the --seed of commands that do not sample; run and chat check theirs in sampling/schema.cc. CLI11 would take
// the largest number for one that is too large.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <string>

namespace millrace {

// For ->check(): a whole number of 64 bits.
inline CLI::Validator seed_range() {
  return CLI::Validator(
      [](const std::string& text) {
        uint64_t seed = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
        if (error == std::errc() && end == text.data() + text.size()) return std::string();
        return "expected a whole number from 0 to 2^64 - 1, got '" + text + "'";
      },
      "");
}

}  // namespace millrace
