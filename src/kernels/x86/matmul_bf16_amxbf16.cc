// BF16 matmul with AMX: tiles of 32 columns, the 32 rows of a panel (matmul_pack.h) and 32 tokens together.
//
//                     rows 0..15   rows 16..31        W: two tiles of a panel, 16 pairs of columns by 16 rows, in place
//   tokens 0..15        C0           C1               X: 16 tokens by 32 columns, in place
//   tokens 16..31       C2           C3               C: sums, in tiles through all columns
//
// One token takes the same path with tiles of one row, so a token's bits do not depend on the others.
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)  // GCC 12's own headers initialize vectors from undefined ones
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/families.h"
#include "kernels/vector/matmul_pack.h"
#include "kernels/x86/tiles.h"

namespace millrace {
namespace {

constexpr int64_t kLanes = 16;  // rows of a matrix, or tokens, in a tile
constexpr int64_t kStep = 2;    // columns
constexpr int64_t kStepBytes = kPanelRows * kStep * 2;
constexpr int64_t kTileSteps = 16;                       // 32 columns
constexpr int64_t kTileBytes = kTileSteps * kStepBytes;  // of both halves of a panel
constexpr int64_t kPrefetchOne = 8192;                   // bytes

int64_t steps_of(int64_t cols) { return (cols + kStep - 1) / kStep; }
int64_t panel_bytes(int64_t cols) { return steps_of(cols) * kStepBytes; }

TileConfig config_for(int64_t first, int64_t second) {
  TileConfig config;
  for (int half = 0; half < 2; ++half) {
    config.set(half, first, 64);
    config.set(6 + half, kTileSteps, 64);
    if (second > 0) config.set(2 + half, second, 64);
  }
  config.set(4, first, 64);
  if (second > 0) config.set(5, second, 64);
  return config;
}

// What is read later: `bytes` of each tile of columns.
struct Ahead {
  const uint8_t* at = nullptr;
  int64_t bytes = 0;
};

// C = a panel times one or two tiles of tokens. `last`: the columns that fill no tile, padded with zeros.
template <bool kTwo>
void multiply_panel(const uint8_t* w, const uint8_t* last, int64_t steps, const uint8_t* x, const uint8_t* x2,
                    int64_t x_stride, Ahead ahead) {
  zero_tile<0>();
  zero_tile<1>();
  if constexpr (kTwo) {
    zero_tile<2>();
    zero_tile<3>();
  }
  const auto multiply = [&](const uint8_t* from, int64_t at) __attribute__((always_inline)) {
    load_tile<6>(from, kStepBytes);
    load_tile<4>(x + at, x_stride);
    load_tile<7>(from + 64, kStepBytes);
    multiply_bf16<0, 4, 6>();
    if constexpr (kTwo) load_tile<5>(x2 + at, x_stride);
    multiply_bf16<1, 4, 7>();
    if constexpr (kTwo) {
      multiply_bf16<2, 5, 6>();
      multiply_bf16<3, 5, 7>();
    }
  };
  int64_t at = 0;
  for (; steps >= kTileSteps; steps -= kTileSteps, at += 64, w += kTileBytes) {
    for (int64_t line = 0; line < ahead.bytes; line += 64) __builtin_prefetch(ahead.at + line);
    ahead.at += ahead.bytes;
    multiply(w, at);
  }
  if (steps > 0) multiply(last, at);
}

// y[t][0..rows) of one tile of tokens, whose sums are in tiles kFirst and kFirst + 1.
template <int kFirst>
void store_sums(float* y, int64_t y_stride, int64_t tokens, int64_t rows) {
  if (rows >= kPanelRows) {
    store_tile<kFirst>(y, y_stride * 4);
    store_tile<kFirst + 1>(y + kLanes, y_stride * 4);
    return;
  }
  alignas(64) float sums[kLanes * kPanelRows];
  store_tile<kFirst>(sums, kPanelRows * 4);
  store_tile<kFirst + 1>(sums + kLanes, kPanelRows * 4);
  for (int64_t t = 0; t < tokens; ++t)
    std::memcpy(y + t * y_stride, sums + t * kPanelRows, static_cast<size_t>(rows) * 4);
}

void run(const MatmulArgs& a) {
  if (a.tokens == 0) return;  // turns are divided by below
  const int64_t steps = steps_of(a.cols), whole = a.tokens / (2 * kLanes), rest = a.tokens % (2 * kLanes);
  const int64_t bytes = panel_bytes(a.cols);
  const TileConfig full = config_for(kLanes, kLanes);
  const TileConfig part = config_for(std::min(rest, kLanes), rest - std::min(rest, kLanes));
  const int64_t turns = whole + (rest > 0 ? 1 : 0);
  if (whole > 0)
    configure_tiles(full);
  else
    configure_tiles(part);
  alignas(64) uint8_t last[kTileBytes];
  const int64_t left = steps % kTileSteps * kStepBytes;
  std::memset(last + left, 0, static_cast<size_t>(kTileBytes - left));
  const uint8_t* panel = a.weights + a.row_begin / kPanelRows * bytes;
  for (int64_t row = a.row_begin; row < a.row_end; row += kPanelRows, panel += bytes) {
    const int64_t rows = a.row_end - row;
    if (left > 0) std::memcpy(last, panel + bytes - left, static_cast<size_t>(left));
    for (int64_t turn = 0; turn < turns; ++turn) {
      const int64_t token = turn * 2 * kLanes;
      const bool two = a.tokens - token > kLanes;
      const uint8_t* x = a.x + token * a.x_stride;
      float* y = a.y + token * a.y_stride + row;
      // Every turn prefetches its share of the next panel.
      const int64_t share = kTileBytes / turns / 64 * 64;
      const Ahead ahead = turns == 1
                              ? Ahead{panel + kPrefetchOne, kTileBytes}
                              : Ahead{panel + bytes + turn * (bytes / turns) / 64 * 64, std::max<int64_t>(64, share)};
      if (turn == whole && whole > 0) configure_tiles(part);
      if (two) {
        multiply_panel<true>(panel, last, steps, x, x + kLanes * a.x_stride, a.x_stride, ahead);
        store_sums<0>(y, a.y_stride, kLanes, rows);
        store_sums<2>(y + kLanes * a.y_stride, a.y_stride, std::min(kLanes, a.tokens - token - kLanes), rows);
      } else {
        multiply_panel<false>(panel, last, steps, x, nullptr, a.x_stride, ahead);
        store_sums<0>(y, a.y_stride, a.tokens - token, rows);
      }
    }
    if (rest > 0 && whole > 0 && row + kPanelRows < a.row_end) configure_tiles(full);
  }
  release_tiles();
}

void pack(const uint8_t* stored, const BlockScales*, int64_t rows, int64_t cols, int64_t row_begin, int64_t row_end,
          uint8_t* packed) {
  pack_value_panels(2, kStep, kPanelRows, stored, rows, cols, row_begin, row_end, packed);
}

}  // namespace

void add_matmul_bf16_amxbf16(KernelTable& table) {
  MatmulKernel kernel;
  kernel.format = float_format("bf16", Activation::bf16);
  kernel.layout = "panels32";
  kernel.row_tile = kPanelRows;
  kernel.packed_bytes = [](int64_t rows, int64_t cols) {
    return (rows + kPanelRows - 1) / kPanelRows * panel_bytes(cols);
  };
  kernel.pack = pack;
  kernel.run = run;
  set_matmul(table, kernel);
}

}  // namespace millrace
#endif
