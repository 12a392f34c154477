// Pooling: how the hidden states of a text's tokens become one vector. Models say which one they were trained for.
#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"
#include "loader/model_files.h"

namespace millrace {

enum class Pooling {
  none,  // every token's
  mean,
  cls,  // the first token's
  last,
};

const char* pooling_name(Pooling pooling);
std::optional<Pooling> find_pooling(std::string_view name);

// GGUF's ARCH.pooling_type, or the folder of sentence-transformers beside the weights (modules.json, 1_Pooling); `last`
// where neither is there: what comes last has seen the whole text. Errors: corrupt, unsupported (another kind).
Result<Pooling> model_pooling(const ModelFiles& files);

// Scales to a length of 1; zeros stay.
void normalize(std::vector<float>& values);

}  // namespace millrace
