// The built-in adapters; external_engine.cc lists them.
#pragma once

#include "compare/external_engine.h"

namespace millrace {

Result<std::shared_ptr<const ExternalEngine>> make_llama_cpp(const OptionValues& options, const ExternalModel& model);

}  // namespace millrace
