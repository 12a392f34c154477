// Pooling: how a text's vector is computed from the hidden states of its tokens. Models declare the pooling that they
// were trained with.
#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"
#include "loader/model_files.h"

namespace millrace {

enum class Pooling {
  none,  // one vector per token
  mean,
  cls,  // the first token
  last,
};

const char* pooling_name(Pooling pooling);
std::optional<Pooling> find_pooling(std::string_view name);

// Returns the pooling from GGUF's ARCH.pooling_type, or from the sentence-transformers files next to the weights
// (modules.json, 1_Pooling). If neither exists, returns `mean` for encoders, else `last`, because the last token has
// seen the whole text. Errors: corrupt, unsupported (another kind of pooling).
Result<Pooling> model_pooling(const ModelFiles& files);

// Returns the pooling of the files as the value of GGUF's ARCH.pooling_type, for conversions: kRankPooling for a class
// with a ranking head. Errors: as model_pooling().
Result<int64_t> gguf_pooling_type(const ModelFiles& files);

// Scales the vector to length 1; a zero vector stays zero.
void normalize(std::vector<float>& values);

}  // namespace millrace
