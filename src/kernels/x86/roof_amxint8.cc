// The loop of products of 8-bit tiles of bandwidth.h.
#if defined(__x86_64__)
#include "kernels/bandwidth.h"
#include "kernels/x86/tiles.h"

namespace millrace {
namespace {

constexpr int64_t kProducts = 4, kOperations = 2 * 16 * 16 * 64;

int32_t int8(int64_t rounds) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) config.set(tile, 16, 64);
  configure_tiles(config);  // and zeroes them
  for (int64_t i = 0; i < rounds; ++i) {
    multiply_i8<0, 4, 6>();
    multiply_i8<1, 4, 7>();
    multiply_i8<2, 5, 6>();
    multiply_i8<3, 5, 7>();
  }
  alignas(64) int32_t sum[16 * 16];
  store_tile<0>(sum, 64);
  release_tiles();
  return sum[0];
}

}  // namespace

RoofKernels roof_kernels_amxint8() { return {.int8 = int8, .int8_operations = kProducts * kOperations}; }

}  // namespace millrace
#endif
