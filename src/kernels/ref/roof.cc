// The portable loops of bandwidth.h: plain multiply and add, as in the reference kernels.
#include <cstring>

#include "kernels/bandwidth.h"

namespace millrace {
namespace {

constexpr int kChains = 8;

uint64_t read(const uint8_t* data, int64_t bytes) {
  uint64_t sum[kChains] = {};
  for (int64_t i = 0; i < bytes; i += kChains * 8) {
    for (int c = 0; c < kChains; ++c) {
      uint64_t word;
      std::memcpy(&word, data + i + c * 8, sizeof(word));
      sum[c] += word;
    }
  }
  uint64_t total = 0;
  for (uint64_t s : sum) total += s;
  return total;
}

float multiply_add(int64_t rounds) {
  float sum[kChains] = {1, 2, 3, 4, 5, 6, 7, 8};
  for (int64_t i = 0; i < rounds; ++i) {
    for (float& s : sum) s = s * 0.999f + 0.001f;
  }
  float total = 0;
  for (float s : sum) total += s;
  return total;
}

}  // namespace

RoofKernels roof_kernels_ref() { return {read, read, multiply_add, 2 * kChains, nullptr, 0, nullptr, 0}; }

}  // namespace millrace
