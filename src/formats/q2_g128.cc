// Q2_G128: 128 values of 2 bits with a scale and a minimum, 2.25 bits a value (affine_group.h).
#include "formats/affine_group.h"

namespace millrace {

extern const Format kQ2G128 = {
    .name = "q2_g128",
    .summary = "2 bits a value, a scale and a minimum for 128",
    .gguf_type = kGgufQ2G128,
    .safetensors = "",
    .block_values = 128,
    .block_bytes = AffineGroup<2, 128>::kBytes,
    .activation = Activation::q8_shift,
    .decode = AffineGroup<2, 128>::decode,
    .encode = AffineGroup<2, 128>::encode,
    .find_non_finite = AffineGroup<2, 128>::find_non_finite,
    .levels = AffineGroup<2, 128>::kLevels,
    .set_level = AffineGroup<2, 128>::set_level,
};

}  // namespace millrace
