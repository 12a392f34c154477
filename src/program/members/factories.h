// Factories of the members of the family program; builtin.cc lists them.
#pragma once

#include "program/member.h"

namespace millrace {

Result<std::unique_ptr<ProgramMember>> make_best_of(const OptionValues& options);
Result<std::unique_ptr<ProgramMember>> make_self_consistency(const OptionValues& options);
Result<std::unique_ptr<ProgramMember>> make_skeleton(const OptionValues& options);
Result<std::unique_ptr<ProgramMember>> make_skeleton_router(const OptionValues& options);
Result<std::unique_ptr<ProgramMember>> make_model_cascade(const OptionValues& options);

}  // namespace millrace
