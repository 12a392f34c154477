// Functions that the encoders in models/arch/ share.
#pragma once

#include "models/arch.h"

namespace millrace {

// Makes every layer bidirectional. Errors (in `config`): unsupported (a causal model).
void set_encoder(ConfigReader& config, ArchSpec& spec);

}  // namespace millrace
