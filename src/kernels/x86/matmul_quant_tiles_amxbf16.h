// Quantized matmul with AMX for several tokens. The bits equal those of the other versions (kernels/quant_shape.h).
//
// A scale belongs to 32 (or 16) columns, so a tile's dots are stored after every group, and vector instructions scale
// them. These take more time than the products, because vectors have only half of their ports while tiles multiply. So
// the vector work must be small: bfloat16 tiles multiply small integers, levels of at most 8 bits, by activations times
// 2^shift. Every sum is an exact integer of less than 24 bits times 2^shift, and is stored as f32. One fused
// multiply-add then remains. 8-bit levels would take too long to convert, and their dots are scaled by token in any
// case. They use 8-bit tiles with the same code (matmul_quant_amxint8.cc).
//
// A step consists of two dots for each row and token: those of two groups, or of the halves of one group. Three parts
// of the work alternate:
//
//   unpack     step s + 1    planes of a panel (matmul_pack.h) -> levels: W, pairs (quads) of columns by 16 rows
//   multiply   item i + 1    dots of 16 tokens and 2 x 16 rows = X W       an item: a step and 16 tokens
//   scale      item i        acc[token][row] = fma(scale, dot, acc[token][row]), 16 rows a vector
//
// X is copied so that it is contiguous: tiles load three times as fast from whole lines as from records of 56 bytes.
// Each four columns of X are in the order 0, 2, 1, 3, in which vectors unpack levels.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "kernels/families.h"
#include "kernels/x86/matmul_vector_avx512vnni.h"
#include "kernels/x86/tiles.h"

namespace millrace {
namespace {

struct VectorTiles : VectorAvx512 {
  static constexpr bool kPrefersSigned = true;
};

// Levels as bfloat16, by codes of up to five bits (or by the lower and upper half of the codes of six bits).
template <int N>
constexpr std::array<uint16_t, 64> bf16_levels() {
  constexpr QuantShape S = kQuantShapes[N];
  std::array<uint16_t, 64> levels = {};
  for (int i = 0; i < 64; ++i) {
    const int code = S.low_bits + S.high_bits == 4 ? i % 16 : i;  // the bits above a nibble belong to the next one
    int value = code - S.offset;
    if (S.table == LevelTable::fp4) value = kFp4Levels[code % 16];
    levels[static_cast<size_t>(i)] = static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16);
  }
  return levels;
}
template <int N>
alignas(64) inline constexpr std::array<uint16_t, 64> kBf16Levels = bf16_levels<N>();

inline constexpr int64_t kTilePrefetch = 8192;  // bytes

// Finds the cell to prefetch: some cells ahead of the one that is read, and finally the first cells of the next panel.
class CellsAhead {
 public:
  // `cells`: number of cells that are read, from `cell` on. The next panel's cells are panel_bytes bytes later.
  CellsAhead(const uint8_t* cell, int64_t cell_bytes, int64_t cells, int64_t panel_bytes)
      : cell_bytes_(cell_bytes), next_panel_(cell + panel_bytes) {
    const int64_t skipped = std::min(cells, kTilePrefetch / cell_bytes + 1);
    at_ = cell + skipped * cell_bytes;
    left_ = cells - skipped;
  }

  const uint8_t* next_cell() {
    if (left_-- == 0) at_ = next_panel_;
    const uint8_t* const cell = at_;
    at_ += cell_bytes_;
    return cell;
  }

 private:
  int64_t cell_bytes_;
  int64_t left_;  // cells left in this panel
  const uint8_t* at_;
  const uint8_t* next_panel_;
};

// Other: a reader of panels of a codebook, in place of CellReader (matmul_quant_amxint8.cc).
template <int N, typename Other = void>
struct QuantTiles {
  using V = VectorTiles;
  using F = V::F;
  using I = V::I;
  static constexpr QuantShape S = kQuantShapes[N];
  static constexpr QuantCell kCell = quant_cell(S);
  static constexpr bool kBytes = S.low_bits == 8;
  static constexpr bool kHalves = S.sub == SubScales::per16;
  static_assert(!kHalves || !S.has_min);
  static_assert(!S.shared_bit);
  static constexpr int64_t kLanes = V::kLanes;
  static constexpr int64_t kValueBytes = kBytes ? 1 : 2;
  static constexpr int64_t kColumns = kHalves ? 16 : 32;  // columns of a dot
  static constexpr int64_t kWeightRows = kColumns * kValueBytes / 4;
  static constexpr int64_t kStepGroups = kHalves ? 1 : 2;
  static constexpr int64_t kCellSteps = kCell.groups / kStepGroups;
  static constexpr int64_t kTogether = 64;     // number of tokens for which levels are unpacked once
  static constexpr int64_t kBlockGroups = 64;  // number of groups of 32 columns in a block, so that X stays in L2

  // The activations of some tokens for a block of columns.
  struct Inputs {
    alignas(64) uint8_t x[kBlockGroups][kTogether][32 * kValueBytes];
    float scale[kBytes ? kBlockGroups : 1][kTogether];
    float sum[S.has_min ? kBlockGroups : 1][kTogether];
    int64_t tokens = 0;
    int64_t tiles = 0;
    int64_t tile_tokens = 0;  // tokens of a tile; the last tile may have fewer
  };

  struct Step {
    alignas(64) uint8_t levels[2][2][kWeightRows][64];  // [dot][part]
    F scale[2][2];                                      // [dot][part]
    F minimum[2][2];
  };

  using Dots = float[2][2][kLanes][kLanes];  // [dot][part][token][row]; kBytes: int32

  // Reads the cells of a panel step by step.
  struct CellReader {
    alignas(64) std::array<uint16_t, S.table == LevelTable::codes ? 64 : 0> codes;  // levels as bfloat16
    const uint8_t* cell;
    CellsAhead cells_ahead;
    const uint8_t* ahead = nullptr;  // the cell to prefetch meanwhile
    int64_t step = 0;                // index of the step in the cell
    const uint8_t* fields = nullptr;
    CellFields<V, N> field_bytes;

    static int64_t panel_bytes(const MatmulArgs& a) { return quant_panel_bytes(kCell, a.cols); }
    static void run_few(const MatmulArgs& a) { quant_run_avx512vnni(N)(a); }

    // Reads `cells` cells of a panel, from cell `first` on.
    CellReader(const MatmulArgs& /*a*/, const uint8_t* panel, int64_t panel_bytes, int64_t first, int64_t cells)
        : cell(panel + kCell.head_bytes + first * kCell.bytes), cells_ahead(cell, kCell.bytes, cells, panel_bytes) {
      if constexpr (S.table == LevelTable::codes) {
        for (size_t i = 0; i < codes.size(); ++i) {
          const auto value = static_cast<float>(static_cast<int8_t>(panel[i % (1 << (S.low_bits + S.high_bits))]));
          codes[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
        }
      }
    }

    void unpack(Step& to) {
      if (step == 0) {
        fields = field_bytes.read(cell);
        ahead = cells_ahead.next_cell();
      }
      constexpr int64_t kLines = kCell.bytes / 64;
      for (int64_t line = step * kLines / kCellSteps; line < (step + 1) * kLines / kCellSteps; ++line)
        __builtin_prefetch(ahead + line * 64);
      unroll<2 * kStepGroups>([&](auto i) __attribute__((always_inline)) { unpack_group<i / 2, i % 2>(to); });
      if (++step == kCellSteps) step = 0, cell += kCell.bytes;
    }

    template <int i, int part>
    [[gnu::always_inline]] void unpack_group(Step& to) {
      const int64_t group = step * kStepGroups + i;
      const uint8_t* planes = cell + kCell.planes_at + group * kCell.group_bytes + part * kLanes * 4;
      // Stores row `row` of the group's levels.
      const auto put = [&](int row, I v) __attribute__((always_inline)) {
        _mm512_store_si512(to.levels[kHalves ? row / kWeightRows : i][part][row % kWeightRows], v);
      };
      if constexpr (kBytes) {
        I w[8];
        unpack_codes<V, N>(
            planes, V::zero(), [](auto) {}, w);
        unroll<8>([&](auto j) __attribute__((always_inline)) { put(j, w[j]); });
      } else {
        const uint16_t* levels = S.table == LevelTable::codes ? codes.data() : kBf16Levels<N>.data();
        const I low = _mm512_load_si512(levels), high = _mm512_load_si512(levels + 32);
        const auto level = [&](I code) __attribute__((always_inline)) {
          return S.low_bits + S.high_bits > 5 ? _mm512_permutex2var_epi16(low, code, high)
                                              : _mm512_permutexvar_epi16(code, low);
        };
        if constexpr (S.low_bits == 4 && S.high_bits == 0 && !S.four_of_eight) {  // nibbles need no unpacking to bytes
          unroll<4>([&](auto p) __attribute__((always_inline)) {
            const I plane = V::load(planes + p * kCell.plane_bytes);
            put(2 * p, level(plane));
            put(2 * p + 8, level(_mm512_srli_epi16(plane, 4)));
            put(2 * p + 1, level(_mm512_srli_epi16(plane, 8)));
            put(2 * p + 9, level(_mm512_srli_epi16(plane, 12)));
          });
        } else {
          static_assert(S.table == LevelTable::none || S.low_bits + S.high_bits < 5);
          I w[8];
          unpack_codes<V, N>(
              planes, V::zero(), [](auto) {}, w);
          unroll<8>([&](auto j) __attribute__((always_inline)) {
            put(2 * j, level(w[j]));
            put(2 * j + 1, level(_mm512_srli_epi16(w[j], 8)));
          });
        }
      }
      struct {
        F scale[2];
        F minimum;
        I minimums;
      } scales;
      load_scales<V, N>(cell, fields, group, part * kLanes, scales);
      to.scale[kHalves ? 0 : i][part] = scales.scale[0];
      if constexpr (kHalves) to.scale[1][part] = scales.scale[1];
      if constexpr (S.has_min) to.minimum[i][part] = scales.minimum;
    }
  };

  using Reader = std::conditional_t<std::is_void_v<Other>, CellReader, Other>;

  static void configure(int64_t tokens) {
    TileConfig config;
    for (int i = 0; i < 4; ++i) config.set(i, tokens, 64);
    for (int i = 4; i < 6; ++i) config.set(i, tokens, kColumns * kValueBytes);
    for (int i = 6; i < 8; ++i) config.set(i, kWeightRows, 64);
    configure_tiles(config);
  }

  template <typename T>
  static T read(const uint8_t* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }

  // Copies activations to `to`. `x`: the block's first record of the first token.
  static void gather(const uint8_t* x, int64_t x_stride, int64_t groups, Inputs& to) {
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15));
    for (int64_t g = 0; g < groups; ++g, x += kQ8GroupBytes) {
      const uint8_t* record = x;
      for (int64_t t = 0; t < to.tokens; ++t, record += x_stride) {
        const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(record));
        if constexpr (kBytes) {
          _mm256_store_si256(reinterpret_cast<__m256i*>(to.x[g][t]), bytes);
          to.scale[g][t] = read<float>(record + kQ8ScaleAt);
        } else {
          const __m256i ordered = _mm256_shuffle_epi8(bytes, order);
          const F shifted = _mm512_set1_ps(std::bit_cast<float>((127 + read<uint32_t>(record + kQ8ShiftAt)) << 23));
          const F low = V::mul(V::to_float(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(ordered))), shifted);
          const F high = V::mul(V::to_float(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(ordered, 1))), shifted);
          _mm512_store_si512(to.x[g][t], (__m512i)_mm512_cvtne2ps_pbh(high, low));  // exact
        }
        if constexpr (S.has_min) {
          to.sum[g][t] = read<float>(record + kQ8SumAt);
        }
      }
    }
  }

  template <int c, int a, int b>
  [[gnu::always_inline]] static void multiply_tile() {
    zero_tile<c>();
    if constexpr (kBytes)
      multiply_i8<c, a, b>();
    else
      multiply_bf16<c, a, b>();
  }

  // Computes dot d of a step for one tile of tokens, in tiles 2 d and 2 d + 1.
  template <int d>
  [[gnu::always_inline]] static void multiply(const Inputs& in, const Step& weights, int64_t step, int64_t tile) {
    constexpr int64_t kStride = 32 * kValueBytes;
    const uint8_t* x = in.x[step * kStepGroups + (kHalves ? 0 : d)][tile * in.tile_tokens];
    load_tile<4 + d>(x + (kHalves ? d * kColumns * kValueBytes : 0), kStride);
    load_tile<6>(weights.levels[d][0], 64);
    multiply_tile<2 * d, 4 + d, 6>();
    load_tile<7>(weights.levels[d][1], 64);
    multiply_tile<2 * d + 1, 4 + d, 7>();
  }

  template <int d>
  [[gnu::always_inline]] static void store(Dots& dots) {
    store_tile<2 * d>(dots[d][0], 64);
    store_tile<2 * d + 1>(dots[d][1], 64);
  }

  // Adds the scaled dots of one tile of tokens to acc[part][token]. Also prefetches the columns of X at `ahead` to L1.
  [[gnu::always_inline]] static void scale(const Inputs& in, const Step& weights, int64_t step, int64_t tile,
                                           const Dots& dots, const uint8_t* ahead, F (&acc)[2][kTogether]) {
    const int64_t first = tile * in.tile_tokens, count = std::min(in.tile_tokens, in.tokens - first);
    const F scale[2][2] = {{weights.scale[0][0], weights.scale[0][1]}, {weights.scale[1][0], weights.scale[1][1]}};
    const float* scale_x = in.scale[kBytes ? 2 * step : 0] + first;
    const float* sum_x = in.sum[S.has_min ? 2 * step : 0] + first;
    const float* from = dots[0][0][0];
    F* to = acc[0] + first;
#pragma GCC unroll 4
    for (int64_t t = 0; t < count; ++t, from += kLanes, ++to, ++scale_x, ++sum_x, ahead += 32 * kValueBytes) {
      __builtin_prefetch(ahead);
      if constexpr (!kHalves) __builtin_prefetch(ahead + kTogether * 32 * kValueBytes);
      unroll<2>([&](auto part) __attribute__((always_inline)) {
        const auto dot = [&](int d) __attribute__((always_inline)) {
          const float* at = from + (2 * d + part) * kLanes * kLanes;
          return kBytes ? V::to_float(_mm512_load_si512(at)) : _mm512_load_ps(at);
        };
        F sum = to[part * kTogether];
        if constexpr (kHalves) {
          const F inner = V::fma(scale[1][part], dot(1), V::mul(scale[0][part], dot(0)));
          sum = _mm512_add_ps(sum, inner);
        } else {
          unroll<2>([&](auto d) __attribute__((always_inline)) {
            const F by = kBytes ? V::mul(scale[d][part], _mm512_set1_ps(scale_x[d * kTogether])) : scale[d][part];
            sum = V::fma(by, dot(d), sum);
            if constexpr (S.has_min)
              sum = V::negated_fma(weights.minimum[d][part], _mm512_set1_ps(sum_x[d * kTogether]), sum);
          });
        }
        to[part * kTogether] = sum;
      });
    }
  }

  // Adds `steps` steps of a panel to acc[part][token]. The first dots of an item are computed while the second dots of
  // the previous item are stored, because tiles are not renamed: a product waits until its tile has been stored.
  static void multiply_panel(const Inputs& in, Reader& reader, int64_t steps, F (&acc)[2][kTogether]) {
    Step ring[3];
    alignas(64) Dots dots[2];
    const int64_t items = steps * in.tiles;
    struct Item {
      int64_t step = 0, tile = 0;
      void advance(int64_t tiles) {
        if (++tile == tiles) ++step, tile = 0;
      }
    };
    Item next, scaled;
    reader.unpack(ring[0]);
    if (steps > 1) reader.unpack(ring[1]);
    for (int64_t item = 0; item <= items; ++item) {
      const Step& weights = ring[next.step % 3];
      if (item < items) multiply<0>(in, weights, next.step, next.tile);
      if (item > 0) store<1>(dots[(item - 1) % 2]);
      if (item < items) {
        multiply<1>(in, weights, next.step, next.tile);
        store<0>(dots[item % 2]);
        next.advance(in.tiles);
      }
      if (item > 0) {
        scale(in, ring[scaled.step % 3], scaled.step, scaled.tile, dots[(item - 1) % 2],
              in.x[next.step * kStepGroups % kBlockGroups][next.tile * in.tile_tokens], acc);
        scaled.advance(in.tiles);
      }
      if (next.tile == 0 && next.step + 1 < steps) reader.unpack(ring[(next.step + 1) % 3]);
    }
  }

  static __mmask16 lanes(int64_t count) {
    return static_cast<__mmask16>(count >= kLanes ? 0xffff : count <= 0 ? 0 : (1u << count) - 1);
  }

  // Multiplies one block of columns of all rows by the tokens of `in`. y has the sums of the previous blocks.
  static void multiply_block(const MatmulArgs& a, const Inputs& in, int64_t token, int64_t first_group, int64_t groups,
                             bool past_caches) {
    const int64_t all = quant_cells(kCell, a.cols) * kCell.groups;
    const int64_t panel_bytes = Reader::panel_bytes(a);
    const bool begins = first_group == 0, ends = first_group + groups == all;
    const uint8_t* panel = a.weights + a.row_begin / kPanelRows * panel_bytes;
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
      Reader reader(a, panel, panel_bytes, first_group / kCell.groups, groups / kCell.groups);
      multiply_panel(in, reader, groups / kStepGroups, acc);
      const bool past =
          past_caches && ends && rows >= kPanelRows && reinterpret_cast<uintptr_t>(y) % 64 == 0 && a.y_stride % 16 == 0;
      for (int64_t t = 0; t < in.tokens; ++t) {
        F unit = ends ? V::broadcast_f32(a.x + (token + t) * a.x_stride + q8_unit_at(a.cols)) : V::zero_f();
        if constexpr (kCell.head_bytes > 0) unit = V::mul(unit, V::broadcast_f32(panel + kFormatUnitAt));
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

  static void run_tiles(const MatmulArgs& a) {
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

  // Minimum number of tokens; fewer tokens are faster with VNNI (docs/instruction-sets.md).
  static constexpr int64_t kMinTokens = kBytes ? 48 : kHalves ? 32 : 24;

  static void run(const MatmulArgs& a) {
    if (a.tokens < (a.tiles_from > 0 ? a.tiles_from : kMinTokens)) return Reader::run_few(a);
    run_tiles(a);
  }
};

template <int N>
void add_quant_tiles(KernelTable& table) {
  const MatmulKernel* few = table.find_matmul(quant_format_at(N));
  if (few == nullptr) return;
  MatmulKernel kernel = *few;
  kernel.run = QuantTiles<N>::run;
  kernel.tiles_from = QuantTiles<N>::kMinTokens;
  set_matmul(table, kernel);
}

}  // namespace
}  // namespace millrace
