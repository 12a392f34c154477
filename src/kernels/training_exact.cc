// The training loops with F32 factors, which are not rounded: for gradients that differences can check to a part in a
// thousand, logits that equal the engine's, and runs on processors without bfloat16 products.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/training.h"

namespace millrace {
namespace training_exact {

using Factor = float;
using Pair = ExactPair;

inline Factor round_one(float value) { return value; }
inline float wide(Factor value) { return value; }
inline Pair pair_of(Factor low, Factor high) { return {low, high}; }
inline float low_of(Pair pair) { return pair.low; }
inline float high_of(Pair pair) { return pair.high; }

#include "kernels/training_basics.inc"
#include "kernels/training_plain.inc"

}  // namespace training_exact

const ExactTrainingKernels& exact_training_kernels() {
  using namespace training_exact;
  static constexpr ExactTrainingKernels kKernels = {
      "exact", product,       round_all, pack_columns,  pack_rows, norm,    norm_backward, silu,   silu_backward,
      relu,    relu_backward, rotate,    cross_entropy, mix,       squares, adam,          attend, attend_backward};
  return kKernels;
}

}  // namespace millrace
