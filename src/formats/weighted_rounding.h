// Rounding to a format of blocks with a weight for the error of each value. If a weight is the mean square of the input
// that the value multiplies, the sum of weight * error^2 is the error of a product. Pure functions, no allocation.
#pragma once

#include <cstdint>

#include "formats/format.h"

namespace millrace {

// Returns true if scales can be chosen by weights: the formats of 2 to 6 bits a value. Rounding to 8 bits loses almost
// nothing, and MXFP4 has powers of two as scales.
bool rounds_by_weights(const Format& format);

// As Format::encode, of a format that rounds_by_weights(). No block has a larger weighted error than with plain
// rounding. Weights are positive and finite.
void encode_weighted(const Format& format, const float* source, const float* weights, uint8_t* destination, int64_t n);

// One block of 256 finite values; null `weights`: all alike. Each is in its format's file.
void encode_q2_k_block(const float* x, const float* weights, uint8_t* block);
void encode_q3_k_block(const float* x, const float* weights, uint8_t* block);
void encode_q4_k_block(const float* x, const float* weights, uint8_t* block);
void encode_q5_k_block(const float* x, const float* weights, uint8_t* block);
void encode_q6_k_block(const float* x, const float* weights, uint8_t* block);
void encode_iq4_xs_block(const float* x, const float* weights, uint8_t* block);

}  // namespace millrace
