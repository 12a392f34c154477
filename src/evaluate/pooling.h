// Pooling: how the hidden states of a text's tokens become one vector. Models declare the pooling they were trained
// for.
#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"
#include "loader/model_files.h"

namespace millrace {

enum class Pooling {
  none,  // every token
  mean,
  cls,  // the first token
  last,
};

const char* pooling_name(Pooling pooling);
std::optional<Pooling> find_pooling(std::string_view name);

// GGUF's ARCH.pooling_type, or the sentence-transformers folder next to the weights (modules.json, 1_Pooling); if
// neither exists, `mean` for encoders, else `last`. Errors: corrupt, unsupported (another kind).
Result<Pooling> model_pooling(const ModelFiles& files);

// Scales to unit length; zero vectors stay zero.
void normalize(std::vector<float>& values);

}  // namespace millrace
