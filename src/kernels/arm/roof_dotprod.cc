// The loop of 8-bit dot products of bandwidth.h.
#include "kernels/arm/roof_int8.h"
#include "kernels/bandwidth.h"

namespace millrace {
namespace {

constexpr int kSums = 16;

int32_t int8(int64_t rounds) {
  return multiply_bytes<kSums>(rounds, [](int32x4_t sum, int8x16_t a, int8x16_t b) { return vdotq_s32(sum, a, b); });
}

}  // namespace

RoofKernels roof_kernels_dotprod() { return {.int8 = int8, .int8_operations = kSums * 16 * 2}; }

}  // namespace millrace
