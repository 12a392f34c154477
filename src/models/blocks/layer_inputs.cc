// Layers with an input of their own (per-layer embeddings: Gemma 3n, Gemma 4 E2B and E4B). A second table has, for each
// token, a row of `layer_input` values for every layer. It is read in place, row by row. A token's inputs are
//
//   (norm(projection embedding / sqrt(width)) + table[token] sqrt(layer_input)) / sqrt(2)     [layers, layer_input]
//
// and behind its MLP, a layer adds norm(input_projection (act(input_gate residual) * input)) to the residual stream.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "models/blocks/blocks.h"

namespace millrace {
namespace {

constexpr int64_t kDecodedValues = 1024;  // of a table's row, at a time
const std::vector<float> kNoInputBias;

// row += factor * table row
void add_table_row(const KernelTable& kernels, const Tensor& table, int64_t row, float factor, float* out) {
  const Format& format = *table.format;
  const RowCodec& codec = *kernels.find_codec(&format);
  const int64_t values = table.cols(), piece = kDecodedValues / format.block_values * format.block_values;
  const uint8_t* stored = table.data + row * format.row_bytes(values);
  std::array<float, kDecodedValues> decoded;
  for (int64_t at = 0; at < values; at += piece) {
    const int64_t count = std::min(piece, values - at);
    codec.decode(stored + format.row_bytes(at), decoded.data(), count);
    kernels.add_scaled(decoded.data(), factor, out + at, count);
  }
}

}  // namespace

void make_layer_inputs(const ArchSpec& spec, const LayerInputWeights& weights, const Batch& batch,
                       ForwardContext& context) {
  const KernelTable& kernels = context.kernels();
  const int64_t tokens = batch.size(), dims = spec.layer_input, values = spec.layer_count() * dims;
  const float* residual = context.residual.as<float>();
  float* inputs = context.layer_inputs.as<float>();
  project(context, residual, encode_rows(context, weights.projection, residual, tokens, spec.width),
          {{LinearId{.kind = LinearKind::layer_inputs}, weights.projection, kNoInputBias, inputs}});
  const float of_embedding = 1.0f / std::sqrt(static_cast<float>(spec.width));
  const float of_table = std::sqrt(static_cast<float>(dims));
  for_rows(context, tokens, 3 * values, [&](int64_t t) {
    float* row = inputs + t * values;
    kernels.scale(row, of_embedding, values);
    for (float* layer = row; layer < row + values; layer += dims)
      kernels.rms_norm(layer, weights.norm.data(), spec.norm_offset, spec.norm_eps, dims, layer);
    // The table may be shorter than the vocabulary, whose last tokens then stand for pictures and sounds.
    const int64_t token = batch.tokens[static_cast<size_t>(t)] < weights.table.rows() ? batch.tokens[t] : 0;
    add_table_row(kernels, weights.table, token, of_table, row);
    kernels.scale(row, std::sqrt(0.5f), values);
  });
}

void layer_input_block(const ArchSpec& spec, int64_t layer, const LayerWeights& weights, int64_t tokens,
                       ForwardContext& context) {
  const KernelTable& kernels = context.kernels();
  const int64_t dims = spec.layer_input;
  const LinearId at{.layer = static_cast<int32_t>(layer)};
  const float* residual = context.residual.as<float>();
  float* gate = context.gate.as<float>();
  project(context, residual, encode_rows(context, weights.input_gate, residual, tokens, spec.width),
          {{at.of(LinearKind::input_gate), weights.input_gate, kNoInputBias, gate}});
  const ActivationRows gated = rows_for(weights.input_projection, tokens, dims, context.encoded.data());
  for_rows(context, tokens, 2 * dims, [&](int64_t t) {
    float* input = context.layer_inputs.as<float>() + (t * spec.layer_count() + layer) * dims;
    activate(spec, kernels, gate + t * dims, input, dims);
    encode_row(kernels, gated, t, gate + t * dims, context.encoded.data());
  });
  project(
      context, gate, gated,
      {{at.of(LinearKind::input_projection), weights.input_projection, kNoInputBias, context.block_out.as<float>()}});
}

}  // namespace millrace
