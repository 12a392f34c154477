// Rows of indices into a codebook (tensor/codebook.h), stored as GGUF's I8. What a byte means depends on the codebook,
// so this is no member of formats(): nothing can be converted to it, and it has no codec.
#include "formats/format.h"

namespace millrace {

const Format& codebook_indices() {
  static constexpr Format kIndices = {
      .name = "codebook",
      .summary = "indices into a codebook beside the matrix",
      .gguf_type = 24,
      .safetensors = "",
      .block_values = 1,
      .block_bytes = 1,
      .activation = Activation::f32,
      .decode = nullptr,
      .encode = nullptr,
      .find_non_finite = nullptr,
  };
  return kIndices;
}

}  // namespace millrace
