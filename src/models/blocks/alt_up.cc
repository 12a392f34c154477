// AltUp (Baykal et al., 2023, Alternating Updates for Efficient Transformers) and LAuReL (Menghani, Kumar and Kumar,
// 2024, Learned Augmented Residual Layer), as in Gemma 3n. The model has several residual streams. Before a layer, each
// stream is predicted from all; the layer computes the active one; then every stream is corrected by what the layer
// changed in it. A router turns the active stream into one number a stream, from which the coefficients are computed.
//
//   streams -> predict -> active stream -> layer -> correct -> streams     [tokens, streams, width]
#include <algorithm>
#include <array>
#include <cmath>

#include "models/blocks/blocks.h"

namespace millrace {
namespace {

constexpr float kMinSquare = 1e-5f;  // of a stream, on average over its values
const std::vector<float> kNoStreamBias;

using StreamValues = std::array<float, kMaxStreams>;

float mean_square(const float* row, int64_t width) {
  double sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += static_cast<double>(row[i]) * static_cast<double>(row[i]);
  return static_cast<float>(sum / static_cast<double>(width));
}

// Scales `row` to the magnitude of `like`.
void match_magnitude(const KernelTable& kernels, const float* like, float* row, int64_t width) {
  const float own = std::max(mean_square(row, width), kMinSquare);
  kernels.scale(row, std::sqrt(mean_square(like, width) / own), width);
}

// The router's number for each stream. `scratch`: [width].
StreamValues route(const ArchSpec& spec, const AltUpWeights& weights, const KernelTable& kernels, const float* row,
                   float* scratch) {
  const int64_t width = spec.width;
  kernels.rms_norm(row, weights.router_norm.data(), spec.norm_offset, spec.norm_eps, width, scratch);
  StreamValues out = {};
  for (int64_t s = 0; s < spec.streams; ++s) {
    float sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += weights.router[static_cast<size_t>(s * width + i)] * scratch[i];
    out[static_cast<size_t>(s)] = std::tanh(sum / static_cast<float>(width));
  }
  return out;
}

// Row `row` of a [n, streams] matrix times the router's numbers.
float coefficient(const std::vector<float>& matrix, int64_t row, int64_t streams, const StreamValues& routed) {
  float sum = 0;
  for (int64_t s = 0; s < streams; ++s)
    sum += matrix[static_cast<size_t>(row * streams + s)] * routed[static_cast<size_t>(s)];
  return sum;
}

void predict_row(const ArchSpec& spec, const AltUpWeights& weights, const StreamValues& routed, float* streams) {
  const int64_t count = spec.streams, width = spec.width;
  std::array<StreamValues, kMaxStreams> mix = {};  // [to][from]
  for (int64_t to = 0; to < count; ++to)
    for (int64_t from = 0; from < count; ++from)
      mix[static_cast<size_t>(to)][static_cast<size_t>(from)] =
          coefficient(weights.predict, to * count + from, count, routed);
  for (int64_t i = 0; i < width; ++i) {
    StreamValues before = {};
    for (int64_t s = 0; s < count; ++s) before[static_cast<size_t>(s)] = streams[s * width + i];
    for (int64_t to = 0; to < count; ++to) {
      float sum = before[static_cast<size_t>(to)];
      for (size_t from = 0; from < static_cast<size_t>(count); ++from)
        sum += before[from] * mix[static_cast<size_t>(to)][from];
      streams[to * width + i] = sum;
    }
  }
}

}  // namespace

void make_streams(const ArchSpec& spec, const std::vector<Weight>& into, int64_t tokens, ForwardContext& context) {
  const KernelTable& kernels = context.kernels();
  const int64_t width = spec.width, all = spec.streams * width;
  const float* residual = context.residual.as<float>();
  float* made = context.block_out.as<float>();
  for (int64_t s = 0; s < spec.streams; ++s) {
    if (s > 0) {
      const Weight& weight = into[static_cast<size_t>(s - 1)];
      const LinearId id{.kind = LinearKind::stream_in, .expert = static_cast<int32_t>(s - 1)};
      project(context, residual, encode_rows(context, weight, residual, tokens, width),
              {{id, weight, kNoStreamBias, made}});
    }
    for_rows(context, tokens, 3 * width, [&](int64_t t) {
      float* stream = context.streams.as<float>() + t * all + s * width;
      std::copy_n((s > 0 ? made : residual) + t * width, width, stream);
      if (s > 0) match_magnitude(kernels, residual + t * width, stream, width);
    });
  }
}

void predict_streams(const ArchSpec& spec, const AltUpWeights& weights, int64_t tokens, ForwardContext& context) {
  const int64_t width = spec.width, all = spec.streams * width;
  for_rows(context, tokens, spec.streams * all, [&](int64_t t) {
    float* streams = context.streams.as<float>() + t * all;
    const float* active = streams + spec.active_stream * width;
    float* scratch = context.normed.as<float>() + t * width;
    predict_row(spec, weights, route(spec, weights, context.kernels(), active, scratch), streams);
    std::copy_n(active, width, context.residual.as<float>() + t * width);
  });
}

void correct_streams(const ArchSpec& spec, const AltUpWeights& weights, int64_t tokens, ForwardContext& context) {
  const int64_t width = spec.width, all = spec.streams * width;
  for_rows(context, tokens, 2 * all, [&](int64_t t) {
    float* streams = context.streams.as<float>() + t * all;
    float* row = context.residual.as<float>() + t * width;
    float* change = context.normed.as<float>() + t * width;
    const StreamValues routed = route(spec, weights, context.kernels(), row, change);
    for (int64_t i = 0; i < width; ++i) change[i] = row[i] - streams[spec.active_stream * width + i];
    for (int64_t s = 0; s < spec.streams; ++s)
      context.kernels().add_scaled(change, 1.0f + coefficient(weights.correct, s, spec.streams, routed),
                                   streams + s * width, width);
    std::copy_n(streams + spec.active_stream * width, width, row);
    for (int64_t i = 0; i < width && !weights.scale.empty(); ++i) row[i] *= weights.scale[static_cast<size_t>(i)];
  });
}

void add_to_streams(const ArchSpec& spec, const NormWeights& norm, int64_t tokens, ForwardContext& context) {
  const int64_t width = spec.width, all = spec.streams * width;
  for_rows(context, tokens, all, [&](int64_t t) {
    float* out = context.block_out.as<float>() + t * width;
    norm_row(spec, norm, context.kernels(), out, out);
    for (int64_t s = 1; s < spec.streams; ++s)
      context.kernels().add(out, context.streams.as<float>() + t * all + s * width, width);
  });
}

void merge_streams(const ArchSpec& spec, const std::vector<Weight>& from, int64_t tokens, ForwardContext& context) {
  const KernelTable& kernels = context.kernels();
  const int64_t width = spec.width, all = spec.streams * width;
  const float* streams = context.streams.as<float>();
  float* residual = context.residual.as<float>();
  float* stream = context.normed.as<float>();
  float* out = context.block_out.as<float>();
  for_rows(context, tokens, width, [&](int64_t t) { std::copy_n(streams + t * all, width, residual + t * width); });
  for (int64_t s = 1; s < spec.streams; ++s) {
    const Weight& weight = from[static_cast<size_t>(s - 1)];
    const ActivationRows rows = rows_for(weight, tokens, width, context.encoded.data());
    for_rows(context, tokens, width, [&](int64_t t) {
      std::copy_n(streams + t * all + s * width, width, stream + t * width);
      encode_row(kernels, rows, t, stream + t * width, context.encoded.data());
    });
    const LinearId id{.kind = LinearKind::stream_out, .expert = static_cast<int32_t>(s - 1)};
    project(context, stream, rows, {{id, weight, kNoStreamBias, out}});
    for_rows(context, tokens, 4 * width, [&](int64_t t) {
      match_magnitude(kernels, streams + t * all, out + t * width, width);
      kernels.add(out + t * width, residual + t * width, width);
    });
  }
  const float share = 1.0f / static_cast<float>(spec.streams);
  for_rows(context, tokens, width, [&](int64_t t) { kernels.scale(residual + t * width, share, width); });
}

void laurel_block(const ArchSpec& spec, int64_t layer, const LayerWeights& weights, int64_t tokens,
                  ForwardContext& context) {
  const KernelTable& kernels = context.kernels();
  const int64_t width = spec.width, rank = spec.laurel_rank;
  const float* normed = context.normed.as<float>();
  float* inner = context.gate.as<float>();
  float* out = context.block_out.as<float>();
  const LinearId at{.layer = static_cast<int32_t>(layer)};
  project(context, normed, encode_rows(context, weights.laurel_left, normed, tokens, width),
          {{at.of(LinearKind::laurel_left), weights.laurel_left, kNoStreamBias, inner}});
  project(context, inner, encode_rows(context, weights.laurel_right, inner, tokens, rank),
          {{at.of(LinearKind::laurel_right), weights.laurel_right, kNoStreamBias, out}});
  for_rows(context, tokens, 2 * width, [&](int64_t t) {
    float* row = context.beside.as<float>() + t * width;
    norm_row(spec, weights.laurel_norm, kernels, out + t * width, row);
    kernels.add(normed + t * width, row, width);
  });
}

void add_laurel(const ArchSpec& spec, int64_t tokens, ForwardContext& context) {
  for_rows(context, tokens, spec.width, [&](int64_t t) {
    context.kernels().add(context.beside.as<float>() + t * spec.width, context.residual.as<float>() + t * spec.width,
                          spec.width);
  });
}

}  // namespace millrace
