// Rotations of the channels of a head, for codecs that round rotated keys and values. A rotation spreads large channels
// over all channels, so that levels under one scale fit them. H is a Hadamard matrix whose order is the largest power
// of two that divides the head; it is repeated along the head. The plain rotation is x -> H x. The one with random
// signs, x -> H S2 H S1 x, produces nearly normal coordinates even if a head has one large channel. Both are
// orthogonal. Pure functions; their bits do not depend on the instruction set.
#pragma once

#include <cstdint>

namespace millrace {

void hadamard_head(float* head, int64_t head_dim);  // its own inverse

void rotate_head_at_random(float* head, int64_t head_dim);
void rotate_head_back(float* head, int64_t head_dim);  // the inverse of rotate_head_at_random()

}  // namespace millrace
