// The loop of products of bfloat16 tiles of bandwidth.h.
#if defined(__x86_64__)
#include "kernels/bandwidth.h"
#include "kernels/x86/tiles.h"

namespace millrace {
namespace {

constexpr int64_t kProducts = 4, kOperations = 2 * 16 * 16 * 32;

float bf16(int64_t rounds) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) config.set(tile, 16, 64);
  configure_tiles(config);  // and zeroes them
  for (int64_t i = 0; i < rounds; ++i) {
    multiply_bf16<0, 4, 6>();
    multiply_bf16<1, 4, 7>();
    multiply_bf16<2, 5, 6>();
    multiply_bf16<3, 5, 7>();
  }
  alignas(64) float sum[16 * 16];
  store_tile<0>(sum, 64);
  release_tiles();
  return sum[0];
}

}  // namespace

RoofKernels roof_kernels_amxbf16() { return {.bf16 = bf16, .bf16_operations = kProducts * kOperations}; }

}  // namespace millrace
#endif
