// The picture of a training run: what its files loss.csv and accuracy.csv say.
#pragma once

#include <string>

#include "base/result.h"
#include "picture/chart.h"

namespace millrace {

// `folder`: of the run. Errors: corrupt (loss.csv cannot be read, or a line is not a row of its columns).
Result<Chart> training_chart(const std::string& folder, const std::string& name);

}  // namespace millrace
