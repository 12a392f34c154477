// The training loops with AMX: a block of 32 x 32 sums stays in four tiles of 16 x 16, the other four hold the factors.
#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/training.h"

namespace millrace {
namespace training_amx {

#include "kernels/training_bf16.inc"
#include "kernels/x86/training_vectors.inc"

constexpr int64_t kTile = 16, kBlock = 2 * kTile;
constexpr int64_t kMaxPairs = 256;                   // of a transposed panel
constexpr int64_t kNearRows = 64, kNearPairs = 128;  // of A, 32 KiB: it stays in the first cache while B passes

// The layout that LDTILECFG reads: eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileShapes kShapes;

// The compiler does not know that the tile loads read memory.
inline void finish_stores() { asm volatile("" ::: "memory"); }

// Rows of `a` are `a_row` pairs apart, its tiles along the summed axis `a_tile`; rows of `b` kBlock.
inline void block(const uint32_t* a, int64_t a_row, int64_t a_tile, const uint32_t* b, int64_t pairs, float* c,
                  int64_t c_row, bool add) {
  const int64_t a_bytes = a_row * 4, b_bytes = kBlock * 4, c_bytes = c_row * 4;
  finish_stores();
  if (add) {
    _tile_loadd(0, c, c_bytes);
    _tile_loadd(1, c + kTile, c_bytes);
    _tile_loadd(2, c + kTile * c_row, c_bytes);
    _tile_loadd(3, c + kTile * c_row + kTile, c_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t p = 0; p < pairs; p += kTile, a += a_tile, b += kTile * kBlock) {
    _tile_loadd(4, a, a_bytes);
    _tile_loadd(6, b, b_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + kTile, b_bytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + kTile * a_row, a_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, c_bytes);
  _tile_stored(1, c + kTile, c_bytes);
  _tile_stored(2, c + kTile * c_row, c_bytes);
  _tile_stored(3, c + kTile * c_row + kTile, c_bytes);
}

// A panel as A: it is transposed, kMaxPairs pairs at a time, into tiles that serve all columns.
void panel_product(const TrainingProduct& p) {
  alignas(64) uint32_t a[kBlock * kMaxPairs];
  for (int64_t from = 0; from < p.pairs; from += kMaxPairs) {
    const int64_t pairs = std::min(kMaxPairs, p.pairs - from);
    for (int64_t row = 0; row < p.rows; row += kBlock) {
      for (int64_t at = 0; at < pairs; at += kTile)
        for (int64_t half = 0; half < kBlock; half += kTile)
          transpose(p.a + (from + at) * p.a_pair + row + half, p.a_pair, a + at * kBlock + half * kTile, kTile);
      for (int64_t column = 0; column < p.columns; column += kBlock)
        block(a, kTile, kTile * kBlock, p.b + column / kBlock * p.b_panel + from * kBlock, pairs,
              p.c + row * p.c_row + column / kBlock * p.c_panel, p.c_row, p.add || from > 0);
    }
  }
}

// The tiles are configured.
void product(const TrainingProduct& p) {
  if (p.a_pair != 1) return panel_product(p);
  const int64_t a_tile = p.a_tile == 0 ? kTile : p.a_tile;
  for (int64_t from = 0; from < p.pairs; from += kNearPairs) {
    const int64_t pairs = std::min(kNearPairs, p.pairs - from);
    for (int64_t near = 0; near < p.rows; near += kNearRows)
      for (int64_t column = 0; column < p.columns; column += kBlock)
        for (int64_t row = near; row < std::min(near + kNearRows, p.rows); row += kBlock)
          block(p.a + row * p.a_row + from / kTile * a_tile, p.a_row, a_tile,
                p.b + column / kBlock * p.b_panel + from * kBlock, pairs,
                p.c + row * p.c_row + column / kBlock * p.c_panel, p.c_row, p.add || from > 0);
  }
}

#include "kernels/training_loops.inc"

template <auto kLoop, typename Argument>
void with_tiles(const Argument& argument) {
  _tile_loadconfig(&kShapes);
  kLoop(argument);
  _tile_release();
}

}  // namespace training_amx

const TrainingKernels& amx_training_kernels() {
  using namespace training_amx;
  static constexpr TrainingKernels kKernels = {"amx",
                                               with_tiles<product, TrainingProduct>,
                                               round_all,
                                               pack_columns,
                                               pack_rows,
                                               norm,
                                               norm_backward,
                                               silu,
                                               silu_backward,
                                               relu,
                                               relu_backward,
                                               rotate,
                                               cross_entropy,
                                               mix,
                                               squares,
                                               adam,
                                               with_tiles<attend, TrainingAttention>,
                                               with_tiles<attend_backward, TrainingAttention>};
  return kKernels;
}

}  // namespace millrace

#endif
