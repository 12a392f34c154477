// WordWrap: breaks text at words while it arrives in pieces, for a terminal of a given width. A word is printed when it
// is complete. Code blocks between ``` or ~~~ stay as they are. Not thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace millrace {

class WordWrap {
 public:
  // `columns`: width of the terminal; 0: text is passed through. May change between two calls of add().
  void set_columns(size_t columns) { columns_ = columns; }

  // Takes the next piece of the text, and returns what can be printed.
  std::string add(std::string_view piece);

  // Returns what is left at the end of the text; the next add() begins a new text.
  std::string finish();

 private:
  void take(std::string_view cluster, size_t columns);
  void end_line();
  void place_word();
  bool ends_fence() const;

  size_t columns_ = 0, column_ = 0;  // column_: of the cursor
  std::string bytes_;                // received, not yet taken: the last character may be incomplete
  std::string blanks_, word_;        // taken, not yet placed
  size_t blank_columns_ = 0, word_columns_ = 0;
  bool last_wide_ = false;    // the word's last character is a wide one, which a line may end with
  bool long_word_ = false;    // the first part of the word is printed
  bool first_word_ = true;    // no word of this line is placed
  bool literal_ = false;      // the rest of the line is not broken
  std::string fence_, line_;  // fence of the code block, "": none; beginning of its current line
  std::string out_;
};

}  // namespace millrace
