// Flags of llama.cpp and vLLM that millrace does not have under that name: its own flag of the same meaning, why the
// flag is not needed, or what to do instead.
#pragma once

#include <string_view>
#include <vector>

namespace millrace {

struct ForeignFlag {
  enum class Kind {
    // `text` is the flag here, or several flags separated by blanks; each receives the value, unless it is written as
    // --flag=value.
    same,
    ignored,  // `text` says why it makes no difference
    refused,  // `text` says what to do instead
  };
  enum class Value { none, one, on_off };  // on_off: the next argument, if it is a word such as on, off or auto

  std::string_view name;  // "-ngl"
  Kind kind;
  Value value;
  std::string_view text;
  std::string_view prefix = "";  // same: written before the value
};

// The entries of a flag; the first one whose flag the command has counts. Empty: not known of another engine.
std::vector<const ForeignFlag*> foreign_flags_called(std::string_view name);

}  // namespace millrace
