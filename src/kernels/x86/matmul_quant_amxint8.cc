// Quantized matmul with AMX, for several tokens; fewer run with VNNI, with the same bits: dots are exact integers, and
// they are scaled and summed in the order of kernels/quant_shape.h.
//
// A scale belongs to 32 columns (or 16), so a tile's dots leave the tiles after every group. A step is two dots of each
// row and token: of two groups, or of the halves of one. Three steps are at work at once, so that tiles and vectors do
// not wait for each other:
//
//   step s + 2   unpack    planes of a panel (matmul_pack.h) -> levels as signed bytes: W, 8 (4) quads by 16 rows
//   step s + 1   tiles     dots of 2 x 16 tokens and 2 x 16 rows = X W
//   step s       scale     acc[token][row] = fma(scale, float(dot), acc[token][row]), 16 rows a vector
//
// X is copied to where it is contiguous: a tile's rows of 32 bytes cost three times as much in the records, which are
// 56 bytes long, as in whole lines.
#if defined(__x86_64__)
#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/families.h"
#include "kernels/x86/matmul_vector_avx512vnni.h"
#include "kernels/x86/tiles.h"

namespace millrace {
namespace {

struct VectorAmx : VectorAvx512 {
  static constexpr bool kPrefersSigned = true;
};

using V = VectorAmx;
using F = V::F;
using I = V::I;

constexpr int64_t kLanes = V::kLanes;
constexpr int64_t kTogether = 64;     // tokens: levels are unpacked once for them
constexpr int64_t kBlockGroups = 64;  // columns in groups of 32: a block of X stays near in L2
constexpr int64_t kLeastTokens = 6;   // fewer are faster with VNNI

template <int N>
struct QuantAmx {
  static constexpr QuantShape S = kQuantShapes[N];
  static constexpr QuantCell kCell = quant_cell(S);
  static constexpr bool kHalves = S.sub == SubScales::per16;
  static constexpr int64_t kColumns = kHalves ? 16 : 32;  // of a dot
  static constexpr int64_t kStepGroups = kHalves ? 1 : 2;
  static constexpr int64_t kQuads = kColumns / 4;
  static constexpr int64_t kCellSteps = kCell.groups / kStepGroups;

  // A block of columns of some tokens.
  struct Inputs {
    alignas(64) int8_t x[kBlockGroups / kStepGroups][2][kTogether][kColumns];
    float scale[kBlockGroups][kTogether];
    float sum[S.has_min ? kBlockGroups : 1][kTogether];  // kHalves: int16 pairs
    int64_t tiles = 0;                                   // of tokens
    int64_t tile_tokens = 0;                             // the last may have fewer
    int64_t tokens = 0;
  };

  struct Step {
    alignas(64) int8_t levels[2][2][kQuads][kLanes * 4];  // [dot][part]
    F scale[2][2];                                        // [part][dot]
    F minimum[2][2];
    I minimums[2];
  };

  using Dots = int32_t[2][2][2][kLanes][kLanes];  // [dot][tile of tokens][part][token][row]

  // Walks through the cells of a panel.
  struct Unpacker {
    const uint8_t* cell;
    const uint8_t* ahead;  // the cell that is prefetched meanwhile
    int64_t ahead_cells;   // that are left in this panel, then comes ...
    const uint8_t* next;   // ... the next one
    int64_t step = 0;      // in the cell
    CellFields<N> fields;
    const uint8_t* sub = nullptr;

    [[gnu::always_inline]] void unpack(Step& to) {
      if (step == 0) {
        sub = fields.read(cell);
        if (ahead_cells-- == 0) ahead = next;
      }
      constexpr int64_t kLines = kCell.bytes / 64;
      for (int64_t line = step * kLines / kCellSteps; line < (step + 1) * kLines / kCellSteps; ++line)
        __builtin_prefetch(ahead + line * 64);
      unroll<2>([&](auto part) __attribute__((always_inline)) {
        unroll<kStepGroups>([&](auto i) __attribute__((always_inline)) {
          const int64_t group = step * kStepGroups + i;
          I w[8];
          unpack_levels<V, N>(
              cell + kCell.planes_at + group * kCell.group_bytes + part * kLanes * 4, [](auto) {}, w);
          unroll<8>([&](auto j) __attribute__((always_inline)) {
            if constexpr (Levels<V, N>::kOffset != 0) w[j] = _mm512_sub_epi8(w[j], V::set1_8(Levels<V, N>::kOffset));
            constexpr int kDot = kHalves ? j / 4 : static_cast<int>(i);
            _mm512_store_si512(to.levels[kDot][part][kHalves ? j % 4 : static_cast<int>(j)], w[j]);
          });
          struct {
            F scale[2];
            F minimum;
            I minimums;
          } scales;
          load_scales<V, N>(cell, sub, group, part * kLanes, scales);
          if constexpr (kHalves) {
            to.scale[part][0] = scales.scale[0];
            to.scale[part][1] = scales.scale[1];
            if constexpr (S.has_min) to.minimum[part][0] = scales.minimum, to.minimums[part] = scales.minimums;
          } else {
            to.scale[part][i] = scales.scale[0];
            if constexpr (S.has_min) to.minimum[part][i] = scales.minimum;
          }
        });
      });
      if (++step == kCellSteps) step = 0, cell += kCell.bytes, ahead += kCell.bytes;
    }
  };

  static void configure(int64_t tokens) {
    TileConfig config;
    for (int i = 0; i < 4; ++i) config.set(i, tokens, 64);
    for (int i = 4; i < 6; ++i) config.set(i, tokens, kColumns);
    for (int i = 6; i < 8; ++i) config.set(i, kQuads, 64);
    configure_tiles(config);
  }

  static void gather(const uint8_t* x, int64_t x_stride, int64_t groups, Inputs& to) {
    for (int64_t g = 0; g < groups; ++g, x += kQ8GroupBytes) {
      const uint8_t* record = x;
      for (int64_t t = 0; t < to.tokens; ++t, record += x_stride) {
        if constexpr (kHalves) {
          std::memcpy(to.x[g][0][t], record, 16);
          std::memcpy(to.x[g][1][t], record + 16, 16);
        } else {
          std::memcpy(to.x[g / 2][g % 2][t], record, 32);
        }
        if constexpr (S.exact_scales() || kHalves) {
          std::memcpy(&to.scale[g][t], record + kQ8ScaleAt, 4);
        } else {
          uint32_t shift;
          std::memcpy(&shift, record + kQ8ShiftAt, 4);
          to.scale[g][t] = std::bit_cast<float>((127 + shift) << 23);
        }
        if constexpr (S.has_min && kHalves) {
          uint32_t low, high;
          std::memcpy(&low, record + kQ8SumsAt, 4);
          std::memcpy(&high, record + kQ8SumsAt + 4, 4);
          to.sum[g][t] = std::bit_cast<float>((low & 0xffff) | high << 16);
        } else if constexpr (S.has_min) {
          std::memcpy(&to.sum[g][t], record + kQ8SumAt, 4);
        }
      }
    }
  }

  // Both dots of a step for tiles `tile` and tile + 1 of tokens.
  [[gnu::always_inline]] static void multiply(const Inputs& in, const Step& weights, int64_t step, int64_t tile,
                                              Dots& dots) {
    const bool two = tile + 1 < in.tiles;
    unroll<2>([&](auto dot) __attribute__((always_inline)) {
      const int8_t* x = in.x[step][dot][tile * in.tile_tokens];
      load_tile<4>(x, kColumns);
      load_tile<6>(weights.levels[dot][0], 64);
      zero_tile<0>();
      multiply_i8<0, 4, 6>();
      load_tile<7>(weights.levels[dot][1], 64);
      zero_tile<1>();
      multiply_i8<1, 4, 7>();
      if (two) {
        load_tile<5>(x + in.tile_tokens * kColumns, kColumns);
        zero_tile<2>();
        multiply_i8<2, 5, 6>();
        zero_tile<3>();
        multiply_i8<3, 5, 7>();
      }
      store_tile<0>(dots[dot][0][0], 64);
      store_tile<1>(dots[dot][0][1], 64);
      if (two) {
        store_tile<2>(dots[dot][1][0], 64);
        store_tile<3>(dots[dot][1][1], 64);
      }
    });
  }

  // acc[token] += a step's dots of one tile of tokens and one part.
  [[gnu::always_inline]] static void scale(const Inputs& in, const Step& weights, int64_t step, int64_t tile, int part,
                                           const int32_t (*dots0)[kLanes], const int32_t (*dots1)[kLanes], F* acc) {
    const int64_t first = tile * in.tile_tokens, count = std::min(in.tile_tokens, in.tokens - first);
    const F scale0 = weights.scale[part][0], scale1 = weights.scale[part][1];
    for (int64_t t = 0; t < count; ++t) {
      const F dot0 = V::to_float(_mm512_load_si512(dots0[t])), dot1 = V::to_float(_mm512_load_si512(dots1[t]));
      F sum = acc[first + t];
      if constexpr (kHalves) {
        F inner = V::fma(scale1, dot1, V::mul(scale0, dot0));
        if constexpr (S.has_min) {
          const I pair = V::broadcast32(&in.sum[step][first + t]);
          inner = V::fma(weights.minimum[part][0], V::to_float(V::dot_pairs(weights.minimums[part], pair)), inner);
        }
        sum = V::fma(_mm512_set1_ps(in.scale[step][first + t]), inner, sum);
      } else {
        unroll<2>([&](auto dot) __attribute__((always_inline)) {
          const F scale_w = dot == 0 ? scale0 : scale1, value = dot == 0 ? dot0 : dot1;
          const F scale_x = _mm512_set1_ps(in.scale[2 * step + dot][first + t]);
          sum = S.exact_scales() ? V::fma(V::mul(scale_w, scale_x), value, sum)
                                 : V::fma(scale_w, V::mul(value, scale_x), sum);  // a shift: exact
          if constexpr (S.has_min)
            sum = V::negated_fma(weights.minimum[part][dot], _mm512_set1_ps(in.sum[2 * step + dot][first + t]), sum);
        });
      }
      acc[first + t] = sum;
    }
  }

  // acc[part][token] += `steps` steps of a panel.
  static void multiply_panel(const Inputs& in, Unpacker& unpacker, int64_t steps, F (&acc)[2][kTogether]) {
    Step ring[4];
    alignas(64) Dots dots[2];
    unpacker.unpack(ring[0]);
    if (steps > 1) unpacker.unpack(ring[1]);
    multiply(in, ring[0], 0, 0, dots[0]);
    int64_t item = 0;
    for (int64_t step = 0; step < steps; ++step) {
      const Step& weights = ring[step % 4];
      if (step + 2 < steps) unpacker.unpack(ring[(step + 2) % 4]);
      for (int64_t tile = 0; tile < in.tiles; tile += 2, ++item) {
        const Dots& now = dots[item % 2];
        Dots& next = dots[(item + 1) % 2];
        if (tile + 2 < in.tiles) {
          multiply(in, weights, step, tile + 2, next);
        } else if (step + 1 < steps) {
          multiply(in, ring[(step + 1) % 4], step + 1, 0, next);
        }
        for (int64_t i = 0; i < 2 && tile + i < in.tiles; ++i) {
          unroll<2>([&](auto part) __attribute__((always_inline)) {
            scale(in, weights, step, tile + i, part, now[0][i][part], now[1][i][part], acc[part]);
          });
        }
      }
    }
  }

  static __mmask16 lanes(int64_t count) {
    return static_cast<__mmask16>(count >= kLanes ? 0xffff : count <= 0 ? 0 : (1u << count) - 1);
  }

  // One block of columns of all rows, times the tokens of `in`. The sums of the blocks before are in y.
  static void multiply_block(const MatmulArgs& a, const Inputs& in, int64_t token, int64_t first_group, int64_t groups,
                             bool past_caches) {
    const int64_t all = quant_cells(kCell, a.cols) * kCell.groups;
    const int64_t panel_bytes = quant_panel_bytes(kCell, a.cols);
    const bool begins = first_group == 0, ends = first_group + groups == all;
    const int64_t cells = groups / kCell.groups, ahead = std::min(cells, kPrefetchQuant / kCell.bytes + 1);
    const uint8_t* panel =
        a.weights + a.row_begin / kPanelRows * panel_bytes + first_group / kCell.groups * kCell.bytes;
    alignas(64) F acc[2][kTogether];
    for (int64_t row = a.row_begin; row < a.row_end; row += kPanelRows, panel += panel_bytes) {
      float* y = a.y + token * a.y_stride + row;
      const int64_t rows = a.row_end - row;
      for (int64_t t = 0; t < in.tokens; ++t) {
        for (int part = 0; part < 2; ++part)
          acc[part][t] = begins
                             ? V::zero_f()
                             : _mm512_maskz_loadu_ps(lanes(rows - part * kLanes), y + t * a.y_stride + part * kLanes);
      }
      Unpacker unpacker{.cell = panel,
                        .ahead = panel + ahead * kCell.bytes,
                        .ahead_cells = cells - ahead,
                        .next = panel + panel_bytes};
      multiply_panel(in, unpacker, groups / kStepGroups, acc);
      const bool past =
          past_caches && ends && rows >= kPanelRows && reinterpret_cast<uintptr_t>(y) % 64 == 0 && a.y_stride % 16 == 0;
      for (int64_t t = 0; t < in.tokens; ++t) {
        const F unit = ends ? V::broadcast_f32(a.x + (token + t) * a.x_stride + q8_unit_at(a.cols)) : V::zero_f();
        for (int part = 0; part < 2; ++part) {
          const F value = ends ? V::mul(acc[part][t], unit) : acc[part][t];
          float* to = y + t * a.y_stride + part * kLanes;
          if (past)
            V::store_past(to, value);
          else
            _mm512_mask_storeu_ps(to, lanes(rows - part * kLanes), value);
        }
      }
    }
  }

  static void run(const MatmulArgs& a) {
    const int64_t all = quant_cells(kCell, a.cols) * kCell.groups;
    const int64_t blocks = (a.tokens + kTogether - 1) / kTogether;
    const bool past_caches = a.tokens >= kManyTokens;
    Inputs in;
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t token = block * a.tokens / blocks;
      in.tokens = (block + 1) * a.tokens / blocks - token;
      in.tiles = (in.tokens + kLanes - 1) / kLanes;
      in.tile_tokens = (in.tokens + in.tiles - 1) / in.tiles;
      configure(in.tile_tokens);
      for (int64_t first = 0; first < all; first += kBlockGroups) {
        const int64_t groups = std::min(kBlockGroups, all - first);
        gather(a.x + token * a.x_stride + first * kQ8GroupBytes, a.x_stride, groups, in);
        multiply_block(a, in, token, first, groups, past_caches);
      }
    }
    release_tiles();
    if (past_caches) V::fence();
  }

  static void run_any(const MatmulArgs& a) {
    if (a.tokens < kLeastTokens) return quant_run_avx512vnni(N)(a);
    run(a);
  }
};

}  // namespace

void add_matmul_quant_amxint8(KernelTable& table) {
  unroll<kQuantSourceCount>([&](auto i) {
    const MatmulKernel* few = table.find_matmul(quant_format_at(i));
    if (few == nullptr) return;
    MatmulKernel kernel = *few;
    kernel.run = QuantAmx<i>::run_any;
    set_matmul(table, kernel);
  });
}

}  // namespace millrace
#endif
