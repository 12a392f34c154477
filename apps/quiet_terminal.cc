#include "quiet_terminal.h"

#include <termios.h>
#include <unistd.h>

#include <csignal>

namespace millrace {
namespace {

termios shown_modes{};  // of the process's terminal, valid while `is_quiet`
volatile std::sig_atomic_t is_quiet = 0;

}  // namespace

QuietTerminal::QuietTerminal(bool terminal) {
  if (!terminal || is_quiet || tcgetattr(STDIN_FILENO, &shown_modes) != 0) return;
  termios modes = shown_modes;
  modes.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON);
  modes.c_lflag |= NOFLSH;
  is_quiet = 1;
  tcsetattr(STDIN_FILENO, TCSANOW, &modes);
}

QuietTerminal::~QuietTerminal() { restore_terminal(); }

void restore_terminal() {
  if (!is_quiet) return;
  tcsetattr(STDIN_FILENO, TCSANOW, &shown_modes);
  is_quiet = 0;
}

}  // namespace millrace
