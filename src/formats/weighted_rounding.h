// Rounds to a block format with a weight for the error of each value. If the weight is the mean square of the input
// that the value multiplies, the sum of weight * error^2 is the error of a product. Pure functions, no allocation.
#pragma once

#include <cstdint>

#include "formats/format.h"

namespace millrace {

// Returns true if the format's scales can be chosen by weights. These are the formats of 2 to 6 bits a value. The error
// of 8-bit formats is almost 0, and MXFP4 has powers of two as scales.
bool rounds_by_weights(const Format& format);

// Variant of Format::encode for a format that rounds_by_weights(). No block has a larger weighted error than with plain
// rounding. Weights must be positive and finite.
void encode_weighted(const Format& format, const float* source, const float* weights, uint8_t* destination, int64_t n);

// Encode one block of 256 finite values. `weights`: null: all equal. Each function is in the file of its format.
void encode_q2_k_block(const float* x, const float* weights, uint8_t* block);
void encode_q3_k_block(const float* x, const float* weights, uint8_t* block);
void encode_q4_k_block(const float* x, const float* weights, uint8_t* block);
void encode_q5_k_block(const float* x, const float* weights, uint8_t* block);
void encode_q6_k_block(const float* x, const float* weights, uint8_t* block);
void encode_iq4_xs_block(const float* x, const float* weights, uint8_t* block);

}  // namespace millrace
