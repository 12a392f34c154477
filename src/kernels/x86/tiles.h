// AMX tiles: eight registers of up to 16 rows of 64 bytes. GCC 12's intrinsics do not tell the compiler which memory
// they read, so it removed the stores that fill a configuration. These wrappers replace them.
//
// A product C += A B of bytes: C [m, 16] int32, A [m, k] with k / 4 quads of bytes a row, B [k / 4] rows of 16 quads,
// one for each column of C; of bfloat16, pairs instead of quads. It takes max(m, rows of B) cycles, so that B with 16
// rows is only busy with 16 rows of A. Intel's manual volume 1, chapter 18.
#pragma once

#include <cstdint>

namespace millrace {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int64_t tile_rows, int64_t bytes) {
    rows[tile] = static_cast<uint8_t>(tile_rows);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};
static_assert(sizeof(TileConfig) == 64);

// Zeroes all tiles. About 100 cycles.
[[gnu::always_inline]] inline void configure_tiles(const TileConfig& config) {
  asm volatile("ldtilecfg %0" : : "m"(config));
}

// Releases the tiles. A thread that uses no tiles is cheaper to switch, and its core may enter a deeper sleep state.
[[gnu::always_inline]] inline void release_tiles() { asm volatile("tilerelease"); }

template <int tile>
[[gnu::always_inline]] inline void load_tile(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
[[gnu::always_inline]] inline void store_tile(void* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
[[gnu::always_inline]] inline void zero_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(tile));
}
// Multiplies signed bytes by signed bytes.
template <int c, int a, int b>
[[gnu::always_inline]] inline void multiply_i8() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
}
// For each element of C, the products of even columns and those of odd columns are summed separately, in ascending
// order, from zero on; then both sums are added to C. Denormals are treated as zero.
template <int c, int a, int b>
[[gnu::always_inline]] inline void multiply_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
}

}  // namespace
}  // namespace millrace
