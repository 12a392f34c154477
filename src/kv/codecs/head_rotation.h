// Rotations of the channels of a head, for codecs that round rotated keys and values: large channels are spread over
// all, so that levels under one scale fit them. H is a Hadamard matrix of the largest power of two that divides the
// head, repeated along it: x -> H x, or with changes of signs that were drawn at random, x -> H S2 H S1 x, which makes
// nearly normal coordinates even of a head with one large channel. Orthogonal. Pure functions, whose bits do not depend
// on the instruction set.
#pragma once

#include <cstdint>

namespace millrace {

void hadamard_head(float* head, int64_t head_dim);  // its own inverse

void rotate_head_at_random(float* head, int64_t head_dim);
void rotate_head_back(float* head, int64_t head_dim);  // the inverse of rotate_head_at_random()

}  // namespace millrace
