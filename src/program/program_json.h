// The result of a program as JSON, for the command and the server.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "program/run.h"

namespace millrace {

// {"kind", "name", "branch", "text", "seed", "prompt_tokens", ...} of one gen or select.
nlohmann::ordered_json step_json(const StepReport& step);

// {"text", "variables", "usage", "seconds", "steps"}. `seconds`: duration of the run.
nlohmann::ordered_json program_json(const ProgramResult& result, double seconds);

}  // namespace millrace
