// Attention over tiles of levels whose keys were stored before RoPE (LevelTiles::turns), with products of words of 16
// bits (vpdpwssd). Include after attention_level_partition.h and the other attention_word_level_*.h.
//
// A level is looked up in 32 words, a table with the values of all levels of its channel. So keys become integers
// relative to the largest of their scales, and outliers are written to their places. Pairs of dims are then rotated,
// still in words, by the place of the token among 32 tokens, so no table of a stream's positions is read. The query is
// rotated back by the position of the first of the 32 tokens. K, Q and S: values of the integer 1 for keys, queries and
// weights. R_p: rotation by position p. i: place among the 32 tokens.
//
//   score = K Q sum over d of [R_i k / K]_d [R_-p q / Q]_d          of token p + i, i from 0 to 31
//   acc   = S sum over t of [p s / S]_t [code]_td + sum over t of p_t z_t + sum over t of p_t excess_td
//
// s, z: scale and zero of a token's values, whose codes are multiples of 1/8192. excess: the term that an outlier adds.
// Integers are as large as possible while sums fit 32 bits. The limit of a query is set by the sum of the lengths of
// its pairs, which rotations do not change; that of weights is set by their sum. Rounding errors are smaller than those
// of bf16, which has a relative error of 2^-9 for each number. The first tokens of a stream, which are separate rows,
// are multiplied in f32.
//
// Each row has its own Q and S, so other rows do not change its result. Raw keys after the encoded ones are multiplied
// in bf16, as in attention_bf16.h.
#pragma once

#include <cstdint>

namespace millrace {
namespace {

template <int kBits>
struct WordLevels {
  WordScratch& b;

  void decode(const AttentionArgs& a, int64_t begin, int64_t end) const {
    start(a, begin, end);
    const __m512i keys = code_words<kBits>(a.tiles->codes, kLargestKey);
    for (int64_t key = begin, stop; key < end; key = stop) {
      stop = end_of_scales(a, key, end);
      decode_key_words<kBits>(a, key, stop, keys, b, b.keys + (key - begin) / kSharedTokens * (a.head_dim / 2) * 128);
    }
    decode_values<kBits>(a, begin, end, b);
    find_excess<kBits>(a, begin, end, b);
  }
  void score(const AttentionArgs& a, int64_t row, int64_t rows, int64_t begin, int64_t end, int64_t from,
             Bf16Scratch& s) const {
    if (from < 0) start(a, begin, end);
    score_word_levels<kBits>(a, row, rows, begin, end, from, s, b);
  }
  void add(const AttentionArgs& a, int64_t row, int64_t rows, int64_t begin, int64_t end, int64_t from,
           const Bf16Scratch& s) const {
    add_word_levels<kBits>(a, row, rows, begin, end, from, s, b);
    if (from < 0) find_excess<kBits>(a, begin, end, b);
    add_value_excess(a, rows, begin, end, s, b, a.acc + row * a.head_dim);
  }

 private:
  void start(const AttentionArgs& a, int64_t begin, int64_t end) const {
    start_tiles(a, begin, end, b);
    load_turns(a, begin, end, b);
  }
};

// Returns true if these kernels support the call: dims are whole vectors, values have the same dims as keys, and values
// have one scale for each token.
inline bool fits_words(const AttentionArgs& a) {
  const LevelTiles& t = *a.tiles;
  return a.head_dim % 32 == 0 && value_dim_of(a) == a.head_dim && t.turns->pairs % 16 == 0 && t.key_tokens > 0 &&
         t.key_tokens <= kMaxKeyTokens && t.group >= a.head_dim && t.codes && t.outliers <= kMaxOutliers;
}

template <int kBits>
void attend_word_levels(const AttentionArgs& a) {
  Bf16Scratch s;
  WordScratch b;
  attend_level_partition(a, s, WordLevels<kBits>{b});
}

}  // namespace
}  // namespace millrace
