// Ctrl-C as a flag: the first one requests a stop, the second one ends the process.
#pragma once

namespace millrace {

void catch_interrupts();
bool interrupted();
void clear_interrupt();

}  // namespace millrace
