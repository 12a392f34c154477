// Q3_G128: 128 values of 3 bits with a scale and a minimum, 3.25 bits a value (affine_group.h).
#include "formats/affine_group.h"

namespace millrace {

extern const Format kQ3G128 = {
    .name = "q3_g128",
    .summary = "3 bits a value, a scale and a minimum for 128",
    .gguf_type = kGgufQ3G128,
    .safetensors = "",
    .block_values = 128,
    .block_bytes = AffineGroup<3, 128>::kBytes,
    .activation = Activation::q8_shift,
    .decode = AffineGroup<3, 128>::decode,
    .encode = AffineGroup<3, 128>::encode,
    .find_non_finite = AffineGroup<3, 128>::find_non_finite,
    .levels = AffineGroup<3, 128>::kLevels,
    .set_level = AffineGroup<3, 128>::set_level,
};

}  // namespace millrace
