#include "interrupt.h"

#include <csignal>
#include <initializer_list>

#include "quiet_terminal.h"

namespace millrace {
namespace {

volatile std::sig_atomic_t pending = 0;

void on_interrupt(int signal) {
  if (pending) {
    restore_terminal();
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  pending = 1;
}

// Ends the process as the signal does, with the terminal as it was.
void on_end(int signal) {
  restore_terminal();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;  // otherwise an interrupted write looks like closed output
  sigaction(SIGINT, &action, nullptr);
  struct sigaction end {};
  end.sa_handler = on_end;
  for (const int signal : {SIGTERM, SIGQUIT, SIGHUP}) sigaction(signal, &end, nullptr);
}

bool interrupted() { return pending != 0; }
void clear_interrupt() { pending = 0; }

}  // namespace millrace
