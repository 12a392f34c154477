// Model::move_keys(): keys are stored rotated by their positions; a rotation by the difference moves them. A key is
// decoded, rotated in f32 and encoded again, so one that moves differs in its last bits from one that was computed
// there.
#include <cmath>
#include <vector>

#include "models/forward_context.h"
#include "models/mixers/mixer.h"
#include "models/model.h"

namespace millrace {
namespace {

// [cos, sin][half], without a scheme's attention factor: the keys have it already.
std::vector<float> rotation(const std::vector<double>& frequencies, int64_t positions) {
  const size_t half = frequencies.size();
  std::vector<float> out(2 * half);
  for (size_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(positions) * frequencies[i];
    out[i] = static_cast<float>(std::cos(angle));
    out[half + i] = static_cast<float>(std::sin(angle));
  }
  return out;
}

}  // namespace

void Model::move_keys(const KeyMove& move, ForwardContext& context) const {
  KvPool& kv = context.kv();  // of one group (CpuExecutor::check_context())
  const KernelTable& kernels = context.kernels();
  const RowCodec& codec = *kernels.find_codec(kv.layout().format);
  const int64_t block_tokens = kv.layout().block_tokens;
  for (int64_t i = 0; i < spec_.layer_count(); ++i) {
    const LayerSpec& layer = spec_.layers[static_cast<size_t>(i)];
    if (layer.mixer->state_kind == StateKind::recurrent || layer.rope < 0) continue;
    const std::vector<float> turn = rotation(rope_frequencies_[static_cast<size_t>(layer.rope)], move.positions);
    const auto half = std::ssize(turn) / 2;
    const int64_t stored = context.first_kv_layer + i;
    const int64_t dim = layer.head_dim, heads = kv.layout().layers[static_cast<size_t>(stored)].kv_heads;
    // The rotated part of a latent row is behind the latent.
    const int64_t rotated_at = layer.mixer->state_kind == StateKind::latent ? dim - 2 * half : 0;
    std::vector<float> rows(static_cast<size_t>(context.pool().threads() * dim));
    context.pool().parallel_for(move.count, [&](int64_t token, int worker) {
      const int64_t slot = move.slot + token;
      float* row = rows.data() + worker * dim;
      for (int64_t h = 0; h < heads; ++h) {
        uint8_t* key = kv.keys(stored, move.blocks[static_cast<size_t>(slot / block_tokens)], h) +
                       slot % block_tokens * kv.row_bytes(stored);
        decode_with_rest(codec, key, kv.rest_bytes(stored), dim, row);
        kernels.rope(row + rotated_at, turn.data(), turn.data() + half, 2 * half, spec_.rope_style == RopeStyle::half);
        encode_with_rest(codec, row, kv.rest_bytes(stored), dim, key);
      }
    });
  }
}

}  // namespace millrace
