// Lines that a person types, with editing, history and multi-line paste (libedit), or that a script pipes in.
//
// In a terminal: emacs keys (or what ~/.editrc says), up and down through the history, UTF-8. A paste arrives between
// ESC [200~ and ESC [201~ ("bracketed"), so its line breaks stay in the line instead of ending it. Not thread-safe, and
// one editor a process: it listens to window-size signals. Ctrl-C is seen through interrupt.h.
#pragma once

#include <memory>
#include <string>

namespace millrace {

enum class LineEnd { line, end_of_input, interrupted };

class LineReader {
 public:
  virtual ~LineReader() = default;
  // One line without its end; `prompt` is shown in a terminal only.
  virtual LineEnd read(const char* prompt, std::string* line) = 0;
  // Puts a text, of one or more lines, into the history.
  virtual void remember(const std::string& text) = 0;
  virtual bool interactive() const = 0;
};

// Whatever fits standard input and output. `history_file` (may be empty) keeps the history between sessions.
std::unique_ptr<LineReader> open_line_reader(const std::string& history_file);

}  // namespace millrace
