// Whose keys and values are these? Stored blocks may only ever meet the model and the arithmetic that made them.
#pragma once

#include <string>

#include "kv/pool.h"
#include "millrace/model.h"
#include "models/forward_context.h"

namespace millrace {

// A text that is the same for two engines exactly when their keys and values are: the sizes and beginnings of the
// model's files, and a hash of the keys and values that this engine computes for a few fixed tokens, which has all
// layers' weights in it, the instruction set's roundings, the positions' frequencies and the KV format. Takes one step
// of the model. Uses one block of the pool while it runs. Errors: resource.
Result<std::string> kv_identity(const LanguageModel& model, ForwardContext& context, KvPool& pool);

}  // namespace millrace
