// Reads programs from JSON. Unknown keys, wrong types and values out of range are refused with their place. The form is
// described in docs/programs.md.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "program/program.h"

namespace millrace {

// Errors: user, with the place, such as "steps[2].max_tokens". The limits are those of check_program(), which a run
// checks; of them this checks only the depth.
Result<Program> read_program(const nlohmann::ordered_json& json, const ProgramLimits& limits = {});

}  // namespace millrace
