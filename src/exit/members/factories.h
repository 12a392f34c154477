// The factories of the built-in exit gates, one file each.
#pragma once

#include "exit/exit_gate.h"

namespace millrace {

Result<std::unique_ptr<ExitGate>> make_layers_exit(const OptionValues& options);

}  // namespace millrace
