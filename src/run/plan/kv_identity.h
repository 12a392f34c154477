// Identifies keys and values: stored blocks may be used only with the model and the arithmetic that produced them.
#pragma once

#include <string>

#include "millrace/model.h"
#include "models/model_runner.h"

namespace millrace {

// A text that is equal for two engines exactly if their keys and values are: the sizes and beginnings of the model's
// files, and a hash of the keys and values that this engine computes for a few fixed tokens. The hash depends on the
// weights of all layers, the instruction set's rounding, the positions' frequencies and the KV format. Runs one step of
// the runner, and uses one block of its pool meanwhile. Errors: resource.
Result<std::string> kv_identity(const LanguageModel& model, ModelRunner& runner);

}  // namespace millrace
