// The state evictors; included only by builtin.cc and their own files.
#pragma once

#include "kv/state_evictor.h"

namespace millrace {

std::unique_ptr<StateEvictor> make_last_states(const OptionValues& options);
std::unique_ptr<StateEvictor> make_every_state(const OptionValues& options);
std::unique_ptr<StateEvictor> make_marconi_states(const OptionValues& options);

}  // namespace millrace
