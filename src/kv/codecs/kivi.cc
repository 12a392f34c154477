// KIVI: levels of 2 or 4 bits between the minimum and the maximum of a group. Keys are grouped along the tokens of one
// channel, because a few channels of keys are large in every token; values along the channels of one token.
//
//   tile   levels [tokens][row] | scales | zeros      scales and zeros are f16:
//          keys [tokens / group][head_dim], values [tokens][head_dim / group, rounded up]
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kv/codecs/factories.h"
#include "tensor/half.h"

namespace millrace {
namespace {

constexpr int64_t kLine = 64;
constexpr float kLargest = 65504.0f;

struct Affine {
  float zero = 0, inverse = 0;
  uint16_t zero_bits = 0, scale_bits = 0;
};

// The scale is rounded to f16, and down where the highest level would be infinite.
Affine affine_of(float low, float high, int top) {
  Affine a{.zero = low, .zero_bits = f32_to_f16(low), .scale_bits = f32_to_f16((high - low) / static_cast<float>(top))};
  if (low + static_cast<float>(top) * f16_to_f32(a.scale_bits) > kLargest) --a.scale_bits;
  const float scale = f16_to_f32(a.scale_bits);
  a.inverse = scale > 0 ? 1.0f / scale : 0.0f;
  return a;
}

class Kivi final : public KvCodec {
 public:
  Kivi(int bits, int64_t group, int64_t residual) : bits_(bits), group_(group), residual_(residual) {}

  std::string text() const override {
    return fmt::format("kivi:bits={},group={},residual={}", bits_, group_, residual_);
  }
  int64_t block_multiple() const override { return group_; }
  int64_t residual() const override { return residual_; }

  int64_t tile_bytes(int64_t tokens, int64_t head_dim) const override {
    return (scales_at(tokens, head_dim) + 4 * scales(tokens, head_dim) + kLine - 1) / kLine * kLine;
  }

  void store(KvPart part, const float* rows, int64_t tokens, int64_t head_dim, uint8_t* tile) const override {
    std::memset(tile, 0, static_cast<size_t>(tile_bytes(tokens, head_dim)));
    const int64_t token_group = part == KvPart::keys ? group_ : 1, channel_group = part == KvPart::keys ? 1 : group_;
    uint8_t* scale = tile + scales_at(tokens, head_dim);
    uint8_t* zero = scale + 2 * scales(tokens, head_dim);
    for (int64_t t = 0; t < tokens; t += token_group) {
      for (int64_t d = 0; d < head_dim; d += channel_group, scale += 2, zero += 2) {
        const Affine a =
            store_group(rows, {t, t + token_group}, {d, std::min(head_dim, d + channel_group)}, head_dim, tile);
        std::memcpy(scale, &a.scale_bits, 2);
        std::memcpy(zero, &a.zero_bits, 2);
      }
    }
  }

  void load(KvPart part, const KernelTable& kernels, const uint8_t* tile, int64_t tokens, int64_t head_dim,
            uint8_t* rows) const override {
    AffineRows a{.bits = bits_, .rows = tokens, .cols = head_dim, .levels = tile, .stride = row_bytes(head_dim)};
    a.scales = tile + scales_at(tokens, head_dim);
    a.zeros = a.scales + 2 * scales(tokens, head_dim);
    a.out = rows;
    if (part == KvPart::values) {
      a.group = group_;
      return kernels.decode_affine(a);
    }
    a.rows = group_;
    for (int64_t t = 0; t < tokens; t += group_) {
      kernels.decode_affine(a);
      a.levels += group_ * a.stride;
      a.scales += 2 * head_dim;
      a.zeros += 2 * head_dim;
      a.out += 2 * group_ * head_dim;
    }
  }

 private:
  struct Range {
    int64_t begin, end;
  };

  int64_t row_bytes(int64_t head_dim) const { return affine_row_bytes(bits_, head_dim); }
  int64_t scales_at(int64_t tokens, int64_t head_dim) const { return tokens * row_bytes(head_dim); }
  // Of keys or of values, whichever has more.
  int64_t scales(int64_t tokens, int64_t head_dim) const {
    return std::max(tokens / group_ * head_dim, tokens * ((head_dim + group_ - 1) / group_));
  }

  Affine store_group(const float* rows, Range tokens, Range channels, int64_t head_dim, uint8_t* tile) const {
    float low = rows[tokens.begin * head_dim + channels.begin], high = low;
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      for (int64_t d = channels.begin; d < channels.end; ++d) {
        low = std::min(low, rows[t * head_dim + d]);
        high = std::max(high, rows[t * head_dim + d]);
      }
    }
    const int top = (1 << bits_) - 1;
    const int64_t unit = 64 / bits_, stride = row_bytes(head_dim);
    const Affine a = affine_of(low, high, top);
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      for (int64_t d = channels.begin; d < channels.end; ++d) {
        const float level = (rows[t * head_dim + d] - a.zero) * a.inverse + 0.5f;
        const int chosen = static_cast<int>(std::min(level, static_cast<float>(top)));
        tile[t * stride + d / unit * 8 + d % 8] |= static_cast<uint8_t>(chosen << (d % unit / 8 * bits_));
      }
    }
    return a;
  }

  int bits_;
  int64_t group_, residual_;
};

}  // namespace

Result<std::shared_ptr<const KvCodec>> make_kivi(const OptionValues& options) {
  const int64_t bits = options.integer("bits"), group = options.integer("group");
  if (bits != 2 && bits != 4) return Error::user(fmt::format("bits: must be 2 or 4, got {}", bits));
  if (group != 32 && group != 64 && group != 128)
    return Error::user(fmt::format("group: must be 32, 64 or 128, got {}", group));
  return std::shared_ptr<const KvCodec>(
      std::make_shared<Kivi>(static_cast<int>(bits), group, options.integer("residual")));
}

}  // namespace millrace
