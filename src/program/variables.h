// Variables of a branch, and texts in which {name} stands for a variable's value.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

using ProgramVariables = std::map<std::string, std::string, std::less<>>;

// Returns true for 1 to 64 letters, digits and '_', of which the first is no digit.
bool is_variable_name(std::string_view name);

// Returns the names that the text contains, in order. Errors: user (a brace that is neither doubled nor around a name).
Result<std::vector<std::string>> names_in(std::string_view text);

// Returns the text with values in place of the names. Values are not searched for names. Errors: user (as names_in(), a
// variable that has no value, or a result of more than `most` bytes).
Result<std::string> with_values(std::string_view text, const ProgramVariables& variables, int64_t most);

// Returns `text` as a text whose value is itself: every brace is doubled.
std::string escaped(std::string_view text);

// Returns the lines that are not empty, without spaces at both ends, at most `most`. `numbered`: only those that begin
// with a number, a full stop and a space, without these.
std::vector<std::string> lines_of(std::string_view text, bool numbered, size_t most);

// Returns the part of `text` behind the last `after`, up to the end of its line, without spaces and full stops at its
// end. If `after` is empty, returns the text without white space at both ends; if it does not occur, "".
std::string voted_part(std::string_view text, std::string_view after);

}  // namespace millrace
