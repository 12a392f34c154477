// Q3_G64: 64 values of 3 bits with a scale and a minimum, 3.5 bits a value (affine_group.h).
#include "formats/affine_group.h"

namespace millrace {

extern const Format kQ3G64 = {
    .name = "q3_g64",
    .summary = "3 bits a value, a scale and a minimum for 64",
    .gguf_type = kGgufQ3G64,
    .safetensors = "",
    .block_values = 64,
    .block_bytes = AffineGroup<3, 64>::kBytes,
    .activation = Activation::q8_shift,
    .decode = AffineGroup<3, 64>::decode,
    .encode = AffineGroup<3, 64>::encode,
    .find_non_finite = AffineGroup<3, 64>::find_non_finite,
    .levels = AffineGroup<3, 64>::kLevels,
    .set_level = AffineGroup<3, 64>::set_level,
};

}  // namespace millrace
