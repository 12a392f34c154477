// The factories of the predictors, one file each in this folder; src/schedule/builtin.cc lists them.
#pragma once

#include "schedule/predictor.h"

namespace millrace {

std::unique_ptr<Predictor> make_oracle(const OptionValues& options);
std::unique_ptr<Predictor> make_constant(const OptionValues& options);
std::unique_ptr<Predictor> make_history(const OptionValues& options);

}  // namespace millrace
