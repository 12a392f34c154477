// Shared by temperature and dynamic temperature.
#pragma once

#include "sampling/row.h"

namespace millrace {

// Sets candidates' logits to (logit - largest) / temperature; temperature > 0.
void scale_by_temperature(SamplingRow& row, double temperature);

}  // namespace millrace
