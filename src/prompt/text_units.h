// Finds the units of a tokenized text that compressors keep or drop as a whole: tokens, words or sentences. They are
// found in the bytes of the tokens. Pure functions.
//
//   texts      "Hello"  " Ann"  "ie"  "."  " Sit"  " down"  "."
//   words      [      ] [           ] [  ] ...                       a token that begins with white space begins a word
//   sentences  [                         ] [                  ]      . ! ? before white space, or a new line, ends one
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

enum class TextUnit { token, word, sentence };
Result<TextUnit> find_text_unit(std::string_view name);  // Errors: user

struct TokenRange {
  int64_t first = 0, count = 0;
  bool operator==(const TokenRange&) const = default;
};

// Returns the units in order. Fixed tokens (1) belong to no unit and separate units. Punctuation belongs to the word
// before it.
std::vector<TokenRange> split_units(std::span<const std::string> texts, std::span<const char> fixed, TextUnit unit);

// Returns `fixed` with the last `count` tokens that were not fixed set to fixed.
std::vector<char> with_last_fixed(std::span<const char> fixed, int64_t count);

}  // namespace millrace
