// Philox4x32-10: a counter-based random number generator (Salmon et al., 2011, "Parallel Random Numbers: As Easy as 1,
// 2, 3"). A draw is a pure function of (seed, stream, index), so a sequence's randomness depends only on its seed and
// position, never on other sequences in the batch or on the order of calls.
#pragma once

#include <array>
#include <cstdint>

namespace millrace {

inline std::array<uint32_t, 4> philox4x32(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                               static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = uint64_t{0xD2511F53u} * c[0];
    uint64_t p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// Returns draw `index` of stream `stream` under `seed`: uniform in [0, 1), with 53 random bits.
inline double philox_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  auto r = philox4x32(seed, index, stream);
  uint64_t bits = (uint64_t{r[0]} << 32 | r[1]) >> 11;
  return static_cast<double>(bits) * 0x1.0p-53;
}

}  // namespace millrace
