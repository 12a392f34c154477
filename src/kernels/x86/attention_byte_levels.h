// Attention over tiles of levels (LevelTiles) with 8-bit products (vpdpbusd). Include after attention_level_partition.h
// and attention_byte_level_units.h, _codes.h, _keys.h and _values.h.
//
// A level is an unsigned byte. Codes that replace levels become unsigned bytes by adding 64; zeros are lowered by 64
// scales in return. The factor of a level is a query or a weight, times a scale. It is rounded to a 16-bit integer,
// relative to the largest factor of its row, and split into two signed bytes: 256 high + low. Sums are exact integers.
// s, z: scale and zero of a group. S: the largest factor in the sum, divided by 32512. [ ]: rounding to an integer.
//
//   keys by columns    score = S (sum over d of [q s / S] level) + sum over d of q z         32 tokens or more
//   keys by tokens     score = s S (sum over d of [q / S] level) + z sum over d of q         by groups of dims
//   values             acc   = S (sum over t of [p s / S] level) + sum over t of p z         p: bf16 weights
//
// The error of a product is that of its factor: half of S, about 2^-16 of the largest factor. A bf16 factor has a
// relative error of 2^-9. Each row has its own S, over all dims, or over all encoded tokens of the partition, where
// unseen tokens have weight 0. Raw keys after the encoded ones are multiplied in bf16, as in attention_bf16.h.
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
