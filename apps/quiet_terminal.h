// QuietTerminal: while an answer is printed, what the user types is not echoed into it. The terminal keeps it, and the
// next prompt shows it. Ctrl-C still interrupts, and no longer discards what was typed.
#pragma once

namespace millrace {

// At most one at a time.
class QuietTerminal {
 public:
  // `terminal`: false: does nothing, as for piped input.
  explicit QuietTerminal(bool terminal);
  ~QuietTerminal();
  QuietTerminal(const QuietTerminal&) = delete;
  QuietTerminal& operator=(const QuietTerminal&) = delete;
};

// Restores the terminal if a QuietTerminal exists. Async-signal-safe: for handlers that end the process.
void restore_terminal();

}  // namespace millrace
