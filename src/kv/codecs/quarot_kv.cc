// QuaRot's KV cache (Ashkboos et al., 2024, "QuaRot: Outlier-Free 4-Bit Inference in Rotated LLMs", section 4): keys
// and values are rotated by a Hadamard matrix of their head, and rounded between the minimum and the maximum of a group
// of a token, which are clipped. Queries are rotated too, and what attention sums of values is rotated back: before
// rounding nothing changes.
#include <fmt/format.h>

#include "kv/codecs/factories.h"
#include "kv/codecs/head_rotation.h"
#include "kv/codecs/level_codec.h"

namespace millrace {
namespace {

class QuarotKv final : public MinMaxCodec {
 public:
  using MinMaxCodec::MinMaxCodec;
  bool rotates() const override { return true; }
  void rotate(float* head, int64_t head_dim) const override { hadamard_head(head, head_dim); }
  void rotate_back(float* head, int64_t head_dim) const override { hadamard_head(head, head_dim); }
};

}  // namespace

Result<std::shared_ptr<const KvCodec>> make_quarot_kv(const OptionValues& options) {
  const int64_t bits = options.integer("bits"), group = options.integer("group"),
                residual = options.integer("residual");
  const double clip = options.number("clip");
  if (group != 32 && group != 64 && group != 128)
    return Error::user(fmt::format("group: must be 32, 64 or 128, got {}", group));
  return std::shared_ptr<const KvCodec>(std::make_shared<QuarotKv>(
      LevelShape{.bits = static_cast<int>(bits), .group = group},
      fmt::format("quarot_kv:bits={},group={},clip={},residual={}", bits, group, clip, residual), residual,
      static_cast<float>(clip)));
}

}  // namespace millrace
