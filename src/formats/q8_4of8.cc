// Q8_4OF8: 32 values of which at most four in eight are not zero, 8 bits each; 5.5 bits a value (four_of_eight.h).
#include "formats/four_of_eight.h"

namespace millrace {

extern const Format kQ8FourOfEight = {
    .name = "q8_4of8",
    .summary = "8 bits for four of eight values, the others zero; one scale for 32",
    .paper = "Mishra et al., 2021, Accelerating Sparse Deep Neural Networks",
    .gguf_type = kGgufQ8Of8,
    .safetensors = "",
    .block_values = FourOfEight<8>::kValues,
    .block_bytes = FourOfEight<8>::kBytes,
    .activation = Activation::q8,
    .decode = FourOfEight<8>::decode,
    .encode = FourOfEight<8>::encode,
    .find_non_finite = FourOfEight<8>::find_non_finite,
};

}  // namespace millrace
