// Tiles of keys that are stored before RoPE (LevelTiles::turns), for the attention kernel. Outliers and the first
// tokens of a stream replace decoded levels. Keys are rotated only by their places in the tile; queries are rotated
// back by the tile's position. Include after level_tiles_kernel.h and rope_kernel.h.
#pragma once

#include <cstring>

#include "kernels/kernel_table.h"

namespace millrace {
namespace {

struct TurnedKeyWords;  // defined if an instruction set decodes and rotates keys as 16-bit words (turned_keys_avx2.h)
template <typename W>
constexpr bool kHasKeyWords = requires {
  sizeof(W);
};

struct NoScratch {};
template <typename W = TurnedKeyWords>
struct KeyWordScratchOf {
  using Type = NoScratch;
};
template <typename W>
requires kHasKeyWords<W>
struct KeyWordScratchOf<W> {
  using Type = typename W::Scratch;
};
using KeyWordScratch = KeyWordScratchOf<>::Type;

// Returns true if the call's encoded keys are rotated as 16-bit words.
template <typename W = TurnedKeyWords>
inline bool rotates_words(const AttentionArgs& a) {
  if constexpr (kHasKeyWords<W>) return a.tiles->turns && W::fits(a);
  return false;
}

struct StoredOutlier {
  int64_t place;
  float value;
  StoredOutlier(const uint8_t* from, int64_t places) {
    uint16_t stored;
    std::memcpy(&stored, from, 2);
    place = stored < places ? stored : places - 1;  // checked because a file may hold the tile
    value = Simd::f16(from + 2);
  }
};

// Writes outliers to kt[d][token]. The last outliers are written first, so that among equal places the first counts.
// About half of the outliers belong to other tokens of the block. They are written to an unused float, to avoid a
// branch that could not be predicted.
inline void place_key_outliers(const TileView& view, float* kt) {
  const LevelTiles& t = view.tiles;
  const int64_t columns = view.first / t.key_tokens, before = view.first % t.key_tokens;
  const int64_t all = t.outliers * view.dims;
  const uint8_t* from = view.tile + t.outliers_at + 4 * columns * all;
  float nowhere[1];
  for (int64_t i = all - 1; i >= 0; --i) {
    const StoredOutlier one(from + 4 * i, t.key_tokens);
    const auto token = static_cast<uint64_t>(one.place - before);
    const int64_t d = t.outliers == 1 ? i : i / t.outliers;
    float* const own = kt + d * kTileTokens + static_cast<int64_t>(token);
    *(token < kTileTokens ? own : nowhere) = one.value;
  }
}

// Writes outliers to the rows of tokens [begin, end). `stride`: floats from row to row.
inline void place_value_outliers(const TileView& view, int64_t begin, int64_t end, float* rows, int64_t stride) {
  const LevelTiles& t = view.tiles;
  const int64_t groups = view.groups();
  for (int64_t token = begin; token < end; ++token) {
    for (int64_t g = 0; g < groups; ++g) {
      const uint8_t* from = view.tile + t.outliers_at + 4 * t.outliers * ((view.first + token) * groups + g);
      const int64_t left = view.dims - g * t.group;
      for (int64_t i = t.outliers - 1; i >= 0; --i) {
        const StoredOutlier one(from + 4 * i, left < t.group ? left : t.group);
        rows[token * stride + g * t.group + one.place] = one.value;
      }
    }
  }
}

// Loads the rotation by minus the position of slot `tile`: [cos, -sin][pairs].
inline void load_turn(const AttentionArgs& a, int64_t tile, float* turn) {
  const KeyTurns& turns = *a.tiles->turns;
  const float* block = turns.blocks + 2 * place_of_block(a, tile) * turns.pairs;
  const float* row = turns.rows + 2 * (tile % a.block_tokens) * turns.pairs;
  for (int64_t p = 0; p < turns.pairs; ++p) {
    const float c = block[p], s = block[turns.pairs + p], dc = row[p], ds = row[turns.pairs + p];
    turn[p] = c * dc - s * ds;
    turn[turns.pairs + p] = -(s * dc + c * ds);
  }
}

// For keys that are words: multiplies the rotation by the value of the word 1, which is the same for both dims of a
// pair.
inline void scale_turn(const KeyTurns& turns, const float* __restrict unit, float* __restrict turn) {
  const int64_t pairs = turns.pairs;
  if (turns.half)
    for (int64_t p = 0; p < pairs; ++p) turn[p] *= unit[p], turn[pairs + p] *= unit[p];
  else
    for (int64_t p = 0; p < pairs; ++p) turn[p] *= unit[2 * p], turn[pairs + p] *= unit[2 * p];
}

// Rotates a query to match the keys of a tile, which are rotated only by their places in the tile. `unit`: value of the
// word 1 in each dim, if keys are words.
inline const float* turn_query(const AttentionArgs& a, const float* turn, const float* unit, const float* q,
                               float* out) {
  const KeyTurns& turns = *a.tiles->turns;
  rope_to(q, out, turn, turn + turns.pairs, turns.pairs, turns.half);
  const bool words = rotates_words(a);
  for (int64_t d = 2 * turns.pairs; d < a.head_dim; ++d) out[d] = words ? q[d] * unit[d] : q[d];
  return out;
}

inline void turn_tile(const KeyTurns& turns, float* kt) {
  for (int64_t p = 0; p < turns.pairs; ++p) {
    float* x = kt + (turns.half ? p : 2 * p) * kTileTokens;
    float* y = kt + (turns.half ? p + turns.pairs : 2 * p + 1) * kTileTokens;
    const float* offset = turns.offsets + 2 * p * kTurnTokens;
    for (int64_t i = 0; i < kTileTokens; i += Simd::kLanes) {
      Simd::F u = Simd::load(x + i), v = Simd::load(y + i);
      rotate(u, v, Simd::load(offset + i), Simd::load(offset + kTurnTokens + i));
      Simd::store(x + i, u);
      Simd::store(y + i, v);
    }
  }
}

// Returns the number of tokens in tile `tile` that are among a stream's first tokens, whose rows are stored separately.
inline int64_t sinks_of_tile(const AttentionArgs& a, int64_t tile) {
  const int64_t sinks = a.tiles->sink_tokens - tile;
  return sinks < kTileTokens ? sinks : kTileTokens;
}

inline float sink_value(const AttentionArgs& a, const uint8_t* first_block, int64_t token, int64_t d, int64_t dims) {
  return Simd::f16(first_block + a.tiles->sink_at + 2 * (token * dims + d));
}

// Completes the keys kt[d][token] so that queries of turn_query() match them. If keys are words, it also decodes them,
// sets `unit` and scales `turn`. The first tokens, whose keys are stored after RoPE, are in the first tile, whose
// queries are not rotated.
template <typename W = TurnedKeyWords>
void finish_keys(const AttentionArgs& a, int64_t tile, const TileView& view, KeyWordScratch& scratch, float* unit,
                 float* turn, float* kt) {
  const bool words = rotates_words(a);
  if constexpr (kHasKeyWords<W>)
    if (words) {
      W::load(view, *view.tiles.turns, scratch, unit, kt);
      scale_turn(*view.tiles.turns, unit, turn);
    }
  if (!words && view.tiles.outliers > 0) place_key_outliers(view, kt);
  if (!words) turn_tile(*view.tiles.turns, kt);
  for (int64_t j = 0; j < sinks_of_tile(a, tile); ++j) {
    for (int64_t d = 0; d < view.dims; ++d) {
      const float x = sink_value(a, a.k_blocks[0], tile + j, d, view.dims);
      kt[d * kTileTokens + j] = words ? x / unit[d] : x;
    }
  }
}

// Completes the decoded values in the rows of tokens [begin, end), or of all tokens.
template <typename W = TurnedKeyWords>
void finish_values(const AttentionArgs& a, int64_t tile, const TileView& view, int64_t begin, int64_t end, float* rows,
                   int64_t stride) {
  bool placed = view.tiles.outliers == 0;
  if constexpr (kHasKeyWords<W>) placed = placed || W::place_values(view, rows, stride);
  if (!placed) place_value_outliers(view, begin, end, rows, stride);
  for (int64_t j = begin; j < end && j < sinks_of_tile(a, tile); ++j)
    for (int64_t d = 0; d < view.dims; ++d) rows[j * stride + d] = sink_value(a, a.v_blocks[0], tile + j, d, view.dims);
}

}  // namespace
}  // namespace millrace
