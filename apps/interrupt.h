// Ctrl-C as a flag: the first one requests a stop, the second one ends the process.
#pragma once

#include <csignal>

namespace millrace {

void catch_interrupts();
bool interrupted();
void clear_interrupt();

// Ends the process as an uncaught Ctrl-C does, so that a shell's loop ends, too.
[[noreturn]] void end_interrupted();

// Catches Ctrl-C while the object lives; then what handled it before does so again.
class InterruptsCaught {
 public:
  InterruptsCaught();
  ~InterruptsCaught();
  InterruptsCaught(const InterruptsCaught&) = delete;

 private:
  struct sigaction before_ {};
};

}  // namespace millrace
