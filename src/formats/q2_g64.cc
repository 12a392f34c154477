// Q2_G64: 64 values of 2 bits with a scale and a minimum, 2.5 bits a value (affine_group.h).
#include "formats/affine_group.h"

namespace millrace {

extern const Format kQ2G64 = {
    .name = "q2_g64",
    .summary = "2 bits a value, a scale and a minimum for 64",
    .gguf_type = kGgufQ2G64,
    .safetensors = "",
    .block_values = 64,
    .block_bytes = AffineGroup<2, 64>::kBytes,
    .activation = Activation::q8_shift,
    .decode = AffineGroup<2, 64>::decode,
    .encode = AffineGroup<2, 64>::encode,
    .find_non_finite = AffineGroup<2, 64>::find_non_finite,
    .levels = AffineGroup<2, 64>::kLevels,
    .set_level = AffineGroup<2, 64>::set_level,
};

}  // namespace millrace
