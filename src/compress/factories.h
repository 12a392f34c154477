// The factories of quantizers/, pruners/ and parts/; each is defined in the file of its pass.
#pragma once

#include "compress/pass.h"

namespace millrace {

Result<std::unique_ptr<Pass>> make_gptq_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_squeezellm_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_wanda_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_lqer_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_outliers_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_rotate_pass(const OptionValues& options);

}  // namespace millrace
