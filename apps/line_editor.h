// LineReader: reads lines typed in a terminal, with editing, history and multi-line paste (libedit), or piped input.
//
// In a terminal: emacs keys (or those of ~/.editrc), up and down for the history, UTF-8. A paste arrives between
// ESC [200~ and ESC [201~ ("bracketed"), so its line breaks stay in the line instead of ending it. Not thread-safe, and
// only one per process: it handles window-size signals. Ctrl-C is detected through interrupt.h.
#pragma once

#include <memory>
#include <string>

#include "line_keys.h"

namespace millrace {

// interrupted: Ctrl-C on an empty line. cleared: Ctrl-C dropped a line that was begun.
enum class LineEnd { line, end_of_input, interrupted, cleared };

class LineReader {
 public:
  virtual ~LineReader() = default;
  // Reads one line without its line end; `prompt` is only shown in a terminal.
  virtual LineEnd read(const char* prompt, std::string* line) = 0;
  // Adds a text of one or more lines to the history.
  virtual void remember(const std::string& text) = 0;
  virtual bool interactive() const = 0;
};

// The reader that suits standard input and output. `history_file` (may be empty) stores the history between sessions.
std::unique_ptr<LineReader> open_line_reader(const std::string& history_file, LineCompleter completer);

}  // namespace millrace
