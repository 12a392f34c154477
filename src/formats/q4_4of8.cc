// Q4_4OF8: 32 values of which at most four in eight are not zero, 4 bits each; 3.5 bits a value (four_of_eight.h).
#include "formats/four_of_eight.h"

namespace millrace {

extern const Format kQ4FourOfEight = {
    .name = "q4_4of8",
    .summary = "4 bits for four of eight values, the others zero; one scale for 32",
    .paper = "Mishra et al., 2021, Accelerating Sparse Deep Neural Networks",
    .gguf_type = kGgufQ4Of8,
    .safetensors = "",
    .block_values = FourOfEight<4>::kValues,
    .block_bytes = FourOfEight<4>::kBytes,
    .activation = Activation::q8_shift,
    .decode = FourOfEight<4>::decode,
    .encode = FourOfEight<4>::encode,
    .find_non_finite = FourOfEight<4>::find_non_finite,
};

}  // namespace millrace
