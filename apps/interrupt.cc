#include "interrupt.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

#include "quiet_terminal.h"

namespace millrace {
namespace {

constexpr int kInterruptedExit = 130;  // as shells report an end by SIGINT

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

// Signals that the parent has the process ignore, as nohup does, stay ignored.
void handle(int signal, void (*handler)(int), int flags) {
  struct sigaction old {};
  if (sigaction(signal, nullptr, &old) == 0 && old.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(signal, &action, nullptr);
}

}  // namespace

void catch_interrupts() {
  handle(SIGINT, on_interrupt, SA_RESTART);  // otherwise an interrupted write looks like closed output
  for (const int signal : {SIGTERM, SIGQUIT, SIGHUP}) handle(signal, on_end, 0);
}

bool interrupted() { return pending != 0; }
void clear_interrupt() { pending = 0; }

void end_interrupted() {
  std::fflush(stdout);
  on_end(SIGINT);
  std::_Exit(kInterruptedExit);  // the signal is blocked
}

InterruptsCaught::InterruptsCaught() {
  sigaction(SIGINT, nullptr, &before_);
  handle(SIGINT, on_interrupt, SA_RESTART);
}

InterruptsCaught::~InterruptsCaught() { sigaction(SIGINT, &before_, nullptr); }

}  // namespace millrace
