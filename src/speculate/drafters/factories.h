// The factories of the built-in drafters.
#pragma once

#include "speculate/drafter.h"

namespace millrace {

Result<std::unique_ptr<Drafter>> make_ngram_drafter(const OptionValues& options);
Result<std::unique_ptr<Drafter>> make_lookahead_drafter(const OptionValues& options);
Result<std::unique_ptr<Drafter>> make_rest_drafter(const OptionValues& options);
Result<std::unique_ptr<Drafter>> make_token_recycling_drafter(const OptionValues& options);
Result<std::unique_ptr<Drafter>> make_prediction_drafter(const OptionValues& options);
Result<std::unique_ptr<Drafter>> make_suffix_drafter(const OptionValues& options);
Result<std::unique_ptr<Drafter>> make_model_drafter(const OptionValues& options);
Result<std::unique_ptr<Drafter>> make_self_drafter(const OptionValues& options);
Result<std::unique_ptr<Drafter>> make_layerskip_drafter(const OptionValues& options);
Result<std::unique_ptr<Drafter>> make_cascade_drafter(const OptionValues& options);
Result<std::unique_ptr<Drafter>> make_staged_drafter(const OptionValues& options);
Result<std::unique_ptr<Drafter>> make_medusa_drafter(const OptionValues& options);
Result<std::unique_ptr<Drafter>> make_eagle_drafter(const OptionValues& options);
Result<std::unique_ptr<Drafter>> make_mtp_drafter(const OptionValues& options);
Result<std::unique_ptr<Drafter>> make_kangaroo_drafter(const OptionValues& options);
Result<std::unique_ptr<Drafter>> make_pass_drafter(const OptionValues& options);
Result<std::unique_ptr<Drafter>> make_longspec_drafter(const OptionValues& options);
Result<std::unique_ptr<Drafter>> make_best_drafter(const OptionValues& options);

}  // namespace millrace
