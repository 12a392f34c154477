// How every command that draws random numbers checks its --seed. CLI11 would take the largest number for one that is
// too large.
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
        return "must be a whole number from 0 to " + std::to_string(UINT64_MAX) + ", got '" + text + "'";
      },
      "");
}

}  // namespace millrace
