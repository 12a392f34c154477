// Keys of the chat's line editor: editing by what a reader sees as one character, completion, and search in the
// history as in bash.
#pragma once

#include <histedit.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

// Completions for the line before the cursor: what its last word can become, and where that word begins.
struct LineChoices {
  size_t begin = 0;
  std::vector<std::string> words;
};
using LineCompleter = std::function<LineChoices(const std::string& line)>;

// Boundaries of grapheme clusters (Unicode TR 29) before and after `at`.
size_t cluster_before(std::wstring_view text, size_t at);
size_t cluster_after(std::wstring_view text, size_t at);

// Returns the rows that libedit fills before the cursor: 0 if the cursor is in the row where the prompt begins. `text`:
// the line up to the cursor. `columns`: width of the terminal, at least 1.
size_t rows_before(std::wstring_view text, size_t prompt_columns, size_t columns);

// Functions for EL_ADDFN.
unsigned char erase_cluster_before(EditLine* editor, int);
unsigned char erase_cluster_after(EditLine* editor, int);
unsigned char go_cluster_back(EditLine* editor, int);
unsigned char go_cluster_on(EditLine* editor, int);

unsigned char complete_line(EditLine* editor, const LineCompleter& completer);
// `lines`: the newest first.
unsigned char search_lines(EditLine* editor, const std::vector<std::wstring>& lines);

}  // namespace millrace
