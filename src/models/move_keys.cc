// Model::move_keys() and put_keys(): keys are stored rotated by their positions; a rotation by the difference moves
// them. A key is decoded, rotated in f32 and encoded again, so one that moves differs in its last bits from one that
// was computed there.
#include <cmath>
#include <vector>

#include "models/forward_context.h"
#include "models/layer_mixers.h"
#include "models/model.h"

namespace millrace {
namespace {

// The rotation of a layer's keys by a difference of positions.
class KeyRotation {
 public:
  // `frequencies`: of the layer; empty: its keys are not rotated. The rotated part of a latent row is behind the
  // latent.
  KeyRotation(const ArchSpec& spec, const LayerSpec& layer, std::span<const double> frequencies, int64_t positions)
      : half_(std::ssize(frequencies)),
        at_(keeps(layer, StateKind::latent) ? layer.head_dim - 2 * half_ : 0),
        halves_(spec.rope_style == RopeStyle::half),
        turn_(2 * frequencies.size()) {
    // Without a scheme's attention factor: the keys have it already.
    for (size_t i = 0; i < frequencies.size(); ++i) {
      const double angle = static_cast<double>(positions) * frequencies[i];
      turn_[i] = static_cast<float>(std::cos(angle));
      turn_[frequencies.size() + i] = static_cast<float>(std::sin(angle));
    }
  }

  void turn(const KernelTable& kernels, float* key) const {
    if (half_ > 0) kernels.rope(key + at_, turn_.data(), turn_.data() + half_, 2 * half_, halves_);
  }

 private:
  int64_t half_, at_;
  bool halves_;
  std::vector<float> turn_;  // [cos, sin][half]
};

}  // namespace

void Model::move_keys(const KeyMove& move, ForwardContext& context) const {
  KvPool& kv = context.kv();  // of one group: docs/compatibility.md, documents computed apart
  const KernelTable& kernels = context.kernels();
  const RowCodec& codec = *kernels.find_codec(kv.layout().format);
  const int64_t block_tokens = kv.layout().block_tokens;
  for (int64_t i = 0; i < spec_.layer_count(); ++i) {
    const LayerSpec& layer = spec_.layers[static_cast<size_t>(i)];
    if (keeps(layer, StateKind::recurrent) || layer.rope < 0 || layer.kv_from >= 0) continue;
    const KeyRotation rotation(spec_, layer, rope_frequencies_[static_cast<size_t>(layer.rope)], move.positions);
    const int64_t stored = context.first_kv_layer + i;
    const int64_t dim = layer.head_dim, heads = kv.layout().layers[static_cast<size_t>(stored)].kv_heads;
    std::vector<float> rows(static_cast<size_t>(context.pool().threads() * dim));
    context.pool().parallel_for(move.count, [&](int64_t token, int worker) {
      const int64_t slot = move.slot + token;
      float* row = rows.data() + worker * dim;
      for (int64_t h = 0; h < heads; ++h) {
        uint8_t* key = kv.keys(stored, move.blocks[static_cast<size_t>(slot / block_tokens)], h) +
                       slot % block_tokens * kv.row_bytes(stored);
        decode_with_residual(codec, key, kv.residual_bytes(stored), dim, row);
        rotation.turn(kernels, row);
        encode_with_residual(codec, row, kv.residual_bytes(stored), dim, key);
      }
    });
  }
}

void Model::put_keys(const Batch& batch, const GivenRows& rows, ForwardContext& context) const {
  KvPool& from = rows.kv;
  const KernelTable& kernels = context.kernels();
  const RowCodec& codec = *kernels.find_codec(from.layout().format);
  const int64_t block_tokens = from.layout().block_tokens;
  const BatchSpan& span = batch.spans.front();
  for (int64_t i = 0; i < spec_.layer_count(); ++i) {
    const LayerSpec& layer = spec_.layers[static_cast<size_t>(i)];
    if (layer.kv_from >= 0) continue;
    const std::span<const double> frequencies =
        layer.rope < 0 ? std::span<const double>() : rope_frequencies_[static_cast<size_t>(layer.rope)];
    const KeyRotation rotation(spec_, layer, frequencies, rows.positions);
    const int64_t stored = context.first_kv_layer + i, dim = layer.head_dim, width = layer.kv_heads * dim;
    CodecTiles& tiles = *context.tiles_of(stored);
    tiles.begin(batch, stored);
    context.pool().parallel_for(span.count, [&](int64_t token, int) {
      const int64_t slot = rows.slot + token, at = slot % block_tokens * from.row_bytes(i);
      const BlockId block = rows.blocks[static_cast<size_t>(slot / block_tokens)];
      float *k = context.k.as<float>() + token * width, *v = context.v.as<float>() + token * width;
      for (int64_t h = 0; h < layer.kv_heads; ++h) {
        codec.decode(from.keys(i, block, h) + at, k + h * dim, dim);
        codec.decode(from.values(i, block, h) + at, v + h * dim, dim);
        if (rows.positions != 0) rotation.turn(kernels, k + h * dim);
      }
      tiles.store(span, token, k, v);
    });
    tiles.encode(context.pool());
  }
}

}  // namespace millrace
