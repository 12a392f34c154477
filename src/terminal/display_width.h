// Columns that a terminal uses for text, and the words of a text in lines of a given width. A character that a reader
// sees as one (a grapheme cluster, Unicode TR 29) is never divided. All functions are pure except terminal_columns().
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

struct TextCluster {
  size_t bytes = 0;
  size_t columns = 0;  // 0: a control character or a mark without a base
};

// Returns the cluster that begins at byte `at`, which must be less than text.size(). An invalid byte is one cluster of
// one column.
TextCluster cluster_at(std::string_view text, size_t at);

// Returns the columns of UTF-8 text without line ends: 2 for wide characters (Chinese, emoji), 0 for combining marks.
size_t display_width(std::string_view text);

// Breaks text at blanks into lines of at most `columns` columns; a longer word is divided. Returns at least one line.
std::vector<std::string> wrapped_lines(std::string_view text, size_t columns);

// Returns `text` after `indent` columns that the caller has written; further lines begin with `indent` blanks.
// `columns`: width of the terminal; 0: no limit, the text stays on one line.
std::string hanging_text(std::string_view text, size_t indent, size_t columns);

// Returns the width of the terminal on standard output; 0: standard output is none, or its width is not known.
size_t terminal_columns();

}  // namespace millrace
