// Prefetches the memory that an attention kernel reads next. Include after simd_avx2.h or simd_avx512.h.
//
// A partition is read in this order: keys, values, then the next partition's first keys. A core can have about two
// dozen lines in flight; more prefetches at once stall it. So lines are prefetched one by one between the arithmetic, a
// fixed number of bytes before they are read. Adjacent blocks form one piece. If many rows use a partition, memory
// would be idle meanwhile, so the next partition is prefetched into L2.
#pragma once

#include <cstdint>

namespace millrace {
namespace {

constexpr int64_t kAheadBytes = 8192;  // twice the bytes in flight at full bandwidth

class Ahead {
 public:
  // Begins a partition whose slots [begin, end) will be read. Skips the first lines, which the previous call
  // prefetched. If there was no previous call, prefetches them immediately, because no computation can start without
  // them.
  void start(const AttentionArgs& a, int64_t begin, int64_t end) {
    pieces_ = 0;
    add(a, a.k_blocks, a.row_bytes, a.key_begin + begin, a.key_begin + end);
    if (a.v_blocks != a.k_blocks) add(a, a.v_blocks, value_stride(a), a.key_begin + begin, a.key_begin + end);
    const int64_t more = a.key_end + (kAheadBytes + a.row_bytes - 1) / a.row_bytes;
    add(a, a.k_blocks, a.row_bytes, a.key_end, more < a.key_ahead ? more : a.key_ahead);
    skip_ahead(a.cold);
  }

  // Variant for encoded slots (LevelTiles). `begin`, `end`: multiples of 32. token_bytes: bytes of a tile for each
  // token.
  void start_levels(const AttentionArgs& a, int64_t begin, int64_t end, int64_t token_bytes) {
    pieces_ = 0;
    add_levels(a, a.k_blocks, a.key_begin + begin, a.key_begin + end);
    add_levels(a, a.v_blocks, a.key_begin + begin, a.key_begin + end);
    const int64_t more = a.key_end + kAheadBytes / token_bytes / 32 * 32 + 32;
    const int64_t last = a.key_ahead < a.encoded_end ? a.key_ahead : a.encoded_end;
    add_levels(a, a.k_blocks, a.key_begin + end, more < last ? more : last);
    skip_ahead(a.cold);
  }

  // Returns the bytes of a tile's levels, scales, zeros and outliers.
  static int64_t bytes_of_tile(const LevelTiles& t) {
    const int64_t scales = t.zeros_at - t.scales_at;
    return t.zeros_at + scales + 2 * t.outliers * scales;
  }

  void ask_lines(int64_t lines) {
    for (; lines > 0; --lines) ask<1>();
  }

  // Begins the prefetch of the next partition's keys and values, up to key_ahead.
  void start_next(const AttentionArgs& a) {
    pieces_ = 0;
    add(a, a.k_blocks, a.row_bytes, a.key_end, a.key_ahead);
    if (a.v_blocks != a.k_blocks) add(a, a.v_blocks, value_stride(a), a.key_end, a.key_ahead);
    piece_ = -1;
    next_piece();
  }

  // Prefetches kLines lines. kLines: approximate number of lines that the following code reads; too many are better
  // than too few. kFar: only into L2.
  template <int kLines, bool kFar = false>
  void ask() {
    if (at_ < end_) {
#pragma GCC unroll 8
      for (int i = 0; i < kLines; ++i) kFar ? __builtin_prefetch(at_ + i * 64, 0, 2) : Simd::prefetch(at_ + i * 64);
      at_ += kLines * 64;
      if (at_ >= end_) next_piece();
    }
  }

 private:
  struct Piece {
    const uint8_t* begin;
    const uint8_t* end;
  };

  void skip_ahead(bool cold) {
    piece_ = -1;
    next_piece();
    for (int64_t skip = kAheadBytes; piece_ < pieces_;) {
      const int64_t left = end_ - at_;
      if (skip < left) {
        if (cold) ask_all(at_ + skip);
        at_ += skip;
        return;
      }
      if (cold) ask_all(end_);
      skip -= left;
      next_piece();
    }
  }

  void ask_all(const uint8_t* end) const {
    for (const uint8_t* line = at_; line < end; line += 64) Simd::prefetch(line);
  }

  void next_piece() {
    ++piece_;
    at_ = piece_ < pieces_ ? piece_at_[piece_].begin : nullptr;
    end_ = piece_ < pieces_ ? piece_at_[piece_].end : nullptr;
  }

  void add(const AttentionArgs& a, const uint8_t* const* blocks, int64_t stride, int64_t begin, int64_t end) {
    int64_t block = begin / a.block_tokens;
    int64_t within = begin % a.block_tokens;
    for (; begin < end; within = 0) {
      const int64_t left = a.block_tokens - within;
      const int64_t rows = left < end - begin ? left : end - begin;
      const uint8_t* first = blocks[block++] + within * stride;
      if (pieces_ > 0 && piece_at_[pieces_ - 1].end == first) {
        piece_at_[pieces_ - 1].end = first + rows * stride;
      } else if (pieces_ < kMaxPieces) {
        piece_at_[pieces_++] = {first, first + rows * stride};
      }
      begin += rows;
    }
  }

  void add_piece(const uint8_t* from, int64_t bytes) {
    if (pieces_ < kMaxPieces) piece_at_[pieces_++] = {from, from + bytes};
  }

  void add_levels(const AttentionArgs& a, const uint8_t* const* blocks, int64_t begin, int64_t end) {
    const LevelTiles& t = *a.tiles;
    const int64_t scales = t.zeros_at - t.scales_at;
    int64_t block = begin / a.block_tokens, first = begin % a.block_tokens;
    for (int64_t rows = 0; begin < end; begin += rows, first = 0) {
      const uint8_t* tile = blocks[block++];
      const int64_t left = a.block_tokens - first;
      rows = left < end - begin ? left : end - begin;
      if (rows == a.block_tokens) {
        add_piece(tile, bytes_of_tile(t));
        continue;
      }
      add_piece(tile + first * t.stride, rows * t.stride);
      add_piece(tile + t.scales_at + scales * first / a.block_tokens, scales * rows / a.block_tokens);
      add_piece(tile + t.zeros_at + scales * first / a.block_tokens, scales * rows / a.block_tokens);
      if (t.outliers > 0)
        add_piece(tile + t.outliers_at + 2 * t.outliers * scales * first / a.block_tokens,
                  2 * t.outliers * scales * rows / a.block_tokens);
    }
  }

  static constexpr int64_t kMaxPieces = 160;  // if blocks are unusually small, the last ones are not prefetched
  Piece piece_at_[kMaxPieces];
  int64_t pieces_, piece_;
  const uint8_t* at_;
  const uint8_t* end_;
};

}  // namespace
}  // namespace millrace
