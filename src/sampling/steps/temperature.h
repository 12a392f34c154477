// What temperature and dynamic temperature share.
#pragma once

#include "sampling/row.h"

namespace millrace {

// Candidates' logits become (logit - largest) / temperature; temperature > 0.
void scale_by_temperature(SamplingRow& row, double temperature);

}  // namespace millrace
