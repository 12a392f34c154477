// Attention over tiles of levels (LevelTiles) with 8-bit products (vpdpbusd). Include after attention_level_partition.h
// and attention_byte_level_units.h, _codes.h, _keys.h and _values.h.
//
// A level is an unsigned byte; codes in place of levels are unsigned bytes once 64 is added to them, and zeros are
// lowered by as many scales. Its factor, a query or a weight times a scale, is rounded to a whole number of 16 bits
// under the largest of its row: 256 high + low, two signed bytes. Sums are whole numbers, and exact. With s and z the
// scale and zero of a group, S the largest number of the sum in the brackets divided by 32512, and [] rounding to whole
// numbers:
//
//   keys by columns    score = S (sum over d of [q s / S] level) + sum over d of q z         32 tokens or more
//   keys by tokens     score = s S (sum over d of [q / S] level) + z sum over d of q         by groups of dims
//   values             acc   = S (sum over t of [p s / S] level) + sum over t of p z         p: bf16 weights
//
// So a product has the error of its factor, half of S, some 2^-16 of the largest; one in bf16 has 2^-9 of its own. S is
// a row's own: of all dims, or of all encoded tokens of the partition, among which unseen ones have weight 0. Raw keys
// behind the encoded ones are multiplied in bf16, as elsewhere.
//
//   keys     [16 tokens][unit][dword][shift]          lane: four dims of a token
//   values   [4 tokens][column of two units][shift]   lane 2 j + u: byte j of unit u of the four tokens
//
#pragma once

#include <cstdint>

namespace millrace {
namespace {

template <typename Codes>
struct ByteLevels {
  using Unit = ByteUnit<Codes::kBits>;
  const Codes& codes;
  ByteScratch& b;

  void decode(const AttentionArgs& a, int64_t begin, int64_t end) const {
    start_tiles(a, begin, end, b);
    decode_key_byte_range(codes, a, begin, end, b);
    for (int64_t column = 0; column < Unit::columns(value_dim_of(a)); ++column)
      decode_value_column(codes, a, begin, end, column, b.values + column * kWeightSteps * Unit::kShifts * 64, b);
  }
  void score(const AttentionArgs& a, int64_t row, int64_t rows, int64_t begin, int64_t end, int64_t from,
             Bf16Scratch& s) const {
    if (from < 0) start_tiles(a, begin, end, b);
    score_byte_levels(codes, a, row, rows, begin, end, from, s, b);
  }
  void add(const AttentionArgs& a, int64_t row, int64_t rows, int64_t begin, int64_t end, int64_t from,
           const Bf16Scratch& s) const {
    add_byte_levels(codes, a, row, rows, begin, end, from, s, b);
  }
};

template <typename Codes>
void attend_byte_levels(const AttentionArgs& a) {
  Bf16Scratch s;
  ByteScratch b;
  const Codes codes(*a.tiles);
  attend_level_partition(a, s, ByteLevels<Codes>{codes, b});
}

}  // namespace
}  // namespace millrace
