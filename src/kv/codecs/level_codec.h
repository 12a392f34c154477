// LevelCodec: the tiles of codecs that store levels of 2 to 4 bits under scales and zeros (LevelTiles, AffineRows). A
// member defines the groups of values, and fits scale, zero and levels to each.
//
//   tile   levels [tokens][row] | scales | zeros      scales and zeros are f16:
//          one for each column of key_tokens tokens: keys only, [tokens / key_tokens][head_dim]
//          or for each group of a token:             [tokens][head_dim / group, rounded up]
//          | outliers, for each scale in the same order: [outliers] of u16 place in its group, f16
#pragma once

#include <array>

#include "kernels/row_levels.h"
#include "kv/codec.h"

namespace millrace {

inline constexpr int64_t kMaxLevelGroup = 1024;  // values under one scale
inline constexpr int64_t kMaxKeyTokens = 128;    // maximum for one channel
inline constexpr float kLargestF16Value = 65504.0f;

// The encoding of the values of one group.
struct FittedGroup {
  uint16_t scale = 0, zero = 0;  // f16
  uint8_t* levels = nullptr;     // levels of each value, in room as RowLevels needs it
};

struct LevelShape {
  int bits = 4;
  int64_t key_tokens = 0;        // tokens of one channel of keys under one scale; 0: keys are grouped as values are
  int64_t group = 0;             // channels of one token under one scale, a multiple of 32; 0: the whole head
  const float* codes = nullptr;  // AffineRows::codes, of keys and values unless codes() says otherwise
  int outliers = 0;              // values of each group that are stored as f16: those farthest from its median
};

struct LevelColumns;  // level_columns.h

class LevelCodec : public KvCodec {
 public:
  explicit LevelCodec(const LevelShape& shape) : shape_(shape) {}

  int64_t block_multiple() const override { return shape_.key_tokens > 0 ? shape_.key_tokens : 32; }
  Result<void> check(int64_t head_dim) const override;
  int64_t tile_bytes(int64_t tokens, int64_t head_dim) const override;
  void store(KvPart part, const float* rows, int64_t tokens, int64_t head_dim, uint8_t* tile) const override;
  bool by_token(KvPart part) const override { return part == KvPart::values || shape_.key_tokens == 0; }
  void store_token(KvPart part, const float* row, int64_t token, int64_t tokens, int64_t head_dim,
                   uint8_t* tile) const override;
  bool moves_tokens() const override { return true; }
  void move_token(KvPart part, const uint8_t* from, int64_t token, uint8_t* to, int64_t place, int64_t tokens,
                  int64_t head_dim) const override;
  void load(KvPart part, const KernelTable& kernels, const uint8_t* tile, int64_t tokens, int64_t head_dim,
            uint8_t* rows) const override;
  std::optional<LevelTiles> level_tiles(int64_t tokens, int64_t head_dim) const override;

 protected:
  // n values, in order of tokens or of channels, with room as RowLevels has it. Decoded values must be finite as f16.
  virtual void fit(KvPart part, const float* values, int64_t n, FittedGroup& out) const = 0;
  // Fits the columns of keys. This version fits one column at a time.
  virtual void fit_columns(LevelColumns& columns) const;
  // Sets the levels for the scale and zero that are there, by the nearest code.
  void fit_codes(KvPart part, const float* values, int64_t n, FittedGroup& out) const;
  void fit_codes(KvPart part, RowLevels& row) const;
  RowLevels row_of(const float* values, int64_t n, const FittedGroup& out) const;
  virtual const float* codes(KvPart /*part*/) const { return shape_.codes; }
  const LevelShape& shape() const { return shape_; }

 private:
  // Where the scale, zero and outliers of the next group are stored.
  struct GroupPlace {
    KvPart part;
    uint8_t *scale, *zero, *outliers;
  };

  LevelTiles tiles_of(int64_t tokens, int64_t head_dim) const;
  GroupPlace place_of(KvPart part, const LevelTiles& tiles, int64_t first, uint8_t* tile) const;
  void clear_unused(int64_t used, int64_t tokens, int64_t head_dim, uint8_t* tile) const;
  void fit_group(float* values, int64_t n, uint8_t* levels, GroupPlace& at) const;
  void fit_few_columns(LevelColumns& columns, int64_t count) const;
  void store_columns(const float* rows, int64_t head_dim, uint8_t* out, int64_t stride, GroupPlace& at) const;
  int64_t group_of(int64_t head_dim) const;
  int64_t groups(int64_t head_dim) const;
  int64_t scales(int64_t tokens, int64_t head_dim) const;
  void take_outlier(float* values, int64_t n, uint8_t* to) const;
  void store_outliers(float* values, int64_t n, uint8_t* to) const;
  void load_outliers(KvPart part, const uint8_t* tile, int64_t tokens, int64_t head_dim, uint8_t* rows) const;

  LevelShape shape_;
};

// Levels between the lowest and the highest value, each times `clip`.
class MinMaxCodec : public LevelCodec {
 public:
  MinMaxCodec(const LevelShape& shape, std::string text, int64_t residual, float clip = 1)
      : LevelCodec(shape), text_(std::move(text)), residual_(residual), clip_(clip) {}
  std::string text() const override { return text_; }
  int64_t residual() const override { return residual_; }

 protected:
  void fit(KvPart part, const float* values, int64_t n, FittedGroup& out) const override;
  void fit_columns(LevelColumns& columns) const override;

 private:
  // Scale and zero of the levels of a group with this range.
  void set_grid(float low, float high, uint16_t& scale, uint16_t& zero) const;
  float top() const { return static_cast<float>((1 << shape().bits) - 1); }

  std::string text_;
  int64_t residual_;
  float clip_;
};

}  // namespace millrace
