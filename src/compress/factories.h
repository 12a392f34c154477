// The factories of quantizers/ and pruners/; each is defined in the file of its pass.
#pragma once

#include "compress/pass.h"

namespace millrace {

Result<std::unique_ptr<Pass>> make_gptq_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_wanda_pass(const OptionValues& options);

}  // namespace millrace
