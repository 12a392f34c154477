// Mamba's mixer (Gu and Dao, 2023, Mamba: Linear-Time Sequence Modeling with Selective State Spaces): a causal
// convolution over the last tokens, then a linear recurrence whose decay and input depend on the token. A stream keeps
// the convolution's last inputs and each channel's state, both f32, in its slot of the StatePool:
//
//   [taps - 1][inner] window | [state][inner] state
//
// Tokens of a stream are processed in order and channels independently, in fixed blocks of channels: the bits do not
// depend on chunks, threads or other streams.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/blocks/blocks.h"
#include "models/mixers/marked_pieces.h"
#include "models/weight_loader.h"

namespace millrace {
namespace {

constexpr int64_t kChannels = 128;  // of one unit of work: its states stay in the first cache

struct MambaWeights final : MixerWeights {
  Weight in, x, step, out;
  std::vector<float> step_bias;
  std::vector<float> conv;  // [taps, inner]
  std::vector<float> conv_bias;
  std::vector<float> a;  // [state, inner]
  std::vector<float> d;  // [inner]

  std::vector<Weight*> matrices() override { return {&in, &x, &step, &out}; }
};

const MambaWeights& mamba(const LayerWeights& weights) { return static_cast<const MambaWeights&>(*weights.mixer); }

int64_t params_width(const SsmSpec& ssm) { return ssm.rank + 2 * ssm.state; }

// Context::mixer, divided.
struct MambaRows {
  float* xz;      // [tokens, 2 * inner]
  float* x;       // [tokens, inner]; the scan replaces it with its output
  float* step;    // [tokens, inner]
  float* params;  // [tokens, rank + 2 * state]
  float* rank;    // [tokens, rank]

  MambaRows(const SsmSpec& ssm, ForwardContext& context) {
    const int64_t tokens = context.limits().tokens;
    xz = context.mixer.as<float>();
    x = xz + tokens * 2 * ssm.inner;
    step = x + tokens * ssm.inner;
    params = step + tokens * ssm.inner;
    rank = params + tokens * params_width(ssm);
  }
  static int64_t values(const SsmSpec& ssm) { return 4 * ssm.inner + params_width(ssm) + ssm.rank; }
};

std::string mamba_problem(const ArchSpec&, const LayerSpec& layer) {
  const SsmSpec& ssm = layer.ssm;
  if (ssm.inner < 1 || ssm.state < 1 || ssm.taps < 1 || ssm.rank < 1)
    return fmt::format("a state space of {} channels, {} values, {} taps and rank {}", ssm.inner, ssm.state, ssm.taps,
                       ssm.rank);
  return {};
}

KvLayer mamba_state(const LayerSpec& layer) {
  return {.kv_heads = 0, .head_dim = 0, .state_values = layer.ssm.inner * (layer.ssm.taps - 1 + layer.ssm.state)};
}

void declare_mamba(const LayerSpec& layer, const ForwardLimits& limits, int, ForwardSizes& sizes) {
  sizes.reads(layer.ssm.inner);
  sizes.reads(layer.ssm.rank);
  ForwardSizes::grow(sizes.mixer, 4 * limits.tokens * MambaRows::values(layer.ssm));
}

std::vector<float> transposed(const std::vector<float>& values, int64_t rows, int64_t cols) {
  std::vector<float> out(values.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c)
      out[static_cast<size_t>(c * rows + r)] = values[static_cast<size_t>(r * cols + c)];
  return out;
}

Result<std::vector<float>> load_decay(WeightLoader& loader, const std::string& name, const SsmSpec& ssm) {
  MILLRACE_TRY(auto stored, loader.table(name, ssm.inner, ssm.state));
  for (float& a : stored) {
    if (ssm.log_a) a = -std::exp(a);
    if (!(a <= 0.0f && std::isfinite(a)))
      return Error::corrupt(fmt::format("tensor {}: a decay rate of {}; all must be finite and at most 0", name, a));
  }
  return transposed(stored, ssm.inner, ssm.state);
}

Result<void> load_mamba(WeightLoader& loader, const std::string& prefix, const ArchSpec& spec, const LayerSpec& layer,
                        LayerWeights& weights) {
  const SsmSpec& ssm = layer.ssm;
  auto own = std::make_unique<MambaWeights>();
  MILLRACE_TRY(own->in, loader.matrix(prefix + "ssm_in.weight", 2 * ssm.inner, spec.width));
  MILLRACE_TRY(auto conv, loader.table(prefix + "ssm_conv1d.weight", ssm.inner, ssm.taps));
  own->conv = transposed(conv, ssm.inner, ssm.taps);
  if (ssm.conv_bias) {
    MILLRACE_TRY(own->conv_bias, loader.vector(prefix + "ssm_conv1d.bias", ssm.inner));
  }
  MILLRACE_TRY(own->x, loader.matrix(prefix + "ssm_x.weight", params_width(ssm), ssm.inner));
  MILLRACE_TRY(own->step, loader.matrix(prefix + "ssm_dt.weight", ssm.inner, ssm.rank));
  MILLRACE_TRY(own->step_bias, loader.vector(prefix + "ssm_dt.bias", ssm.inner));
  MILLRACE_TRY(own->a, load_decay(loader, prefix + "ssm_a", ssm));
  MILLRACE_TRY(own->d, loader.vector(prefix + "ssm_d", ssm.inner));
  MILLRACE_TRY(own->out, loader.matrix(prefix + "ssm_out.weight", spec.width, ssm.inner));
  weights.mixer = std::move(own);
  return {};
}

const Weight& in_matrix(const LayerWeights& weights) { return mamba(weights).in; }

// Calls body(span, first channel, channels) for every stream of the batch and block of channels, which updates `rows`
// values of the state for each channel, from row `from` of the state on; piece by piece if the span has marks.
template <typename Body>
void for_channels(const MixerCall& call, int64_t values, int64_t from, int64_t rows, const Body& body) {
  const int64_t inner = call.layer.ssm.inner;
  const int64_t blocks = (inner + kChannels - 1) / kChannels;
  const auto unit = [&](int64_t i) {
    const int64_t first = i % blocks * kChannels, channels = std::min(kChannels, inner - first);
    run_marked_pieces(call, call.batch.spans[static_cast<size_t>(i / blocks)],
                      {from * inner + first, channels, rows, inner},
                      [&](const BatchSpan& piece) { body(piece, first, channels); });
  };
  for_rows(call.context, std::ssize(call.batch.spans) * blocks,
           values * kChannels * call.batch.size() / std::ssize(call.batch.spans), unit);
}

// x = silu(conv(x)); a stream's first token begins with an empty window and state.
void convolve(const MixerCall& call, const MambaRows& rows) {
  const SsmSpec& ssm = call.layer.ssm;
  const MambaWeights& weights = mamba(call.weights);
  for_channels(call, 8 * ssm.taps, 0, ssm.taps - 1, [&](const BatchSpan& span, int64_t first, int64_t channels) {
    float* window = state_values(call, span.state) + first;
    for (int64_t k = 0; span.first_slot == 0 && k < ssm.taps - 1 + ssm.state; ++k)
      std::fill_n(window + k * ssm.inner, channels, 0.0f);
    call.context.kernels().causal_conv({.tokens = span.count,
                                        .channels = channels,
                                        .taps = ssm.taps,
                                        .stride = ssm.inner,
                                        .weight = weights.conv.data() + first,
                                        .bias = weights.conv_bias.empty() ? nullptr : weights.conv_bias.data() + first,
                                        .window = window,
                                        .x = rows.xz + span.begin * 2 * ssm.inner + first,
                                        .x_stride = 2 * ssm.inner,
                                        .y = rows.x + span.begin * ssm.inner + first,
                                        .y_stride = ssm.inner});
  });
}

void scan(const MixerCall& call, const MambaRows& rows) {
  const SsmSpec& ssm = call.layer.ssm;
  const MambaWeights& weights = mamba(call.weights);
  for_channels(call, 16 * ssm.state, ssm.taps - 1, ssm.state,
               [&](const BatchSpan& span, int64_t first, int64_t channels) {
                 const float* params = rows.params + span.begin * params_width(ssm) + ssm.rank;
                 const int64_t at = span.begin * ssm.inner + first;
                 call.context.kernels().selective_scan(
                     {.tokens = span.count,
                      .channels = channels,
                      .state_values = ssm.state,
                      .stride = ssm.inner,
                      .a = weights.a.data() + first,
                      .d = weights.d.data() + first,
                      .state = state_values(call, span.state) + (ssm.taps - 1) * ssm.inner + first,
                      .x = rows.x + at,
                      .step = rows.step + at,
                      .y = rows.x + at,
                      .x_stride = ssm.inner,
                      .b = params,
                      .c = params + ssm.state,
                      .b_stride = params_width(ssm),
                      .z = rows.xz + span.begin * 2 * ssm.inner + ssm.inner + first,
                      .z_stride = 2 * ssm.inner});
               });
}

ActivationRows rounded(ForwardContext& context, const Weight& weight, const float* x, int64_t tokens) {
  return encode_activations(context.kernels(), context.pool(), weight.format->activation, x, weight.cols, tokens,
                            weight.cols, context.encoded.data());
}

void begin_mamba(const MixerCall& call, const ActivationRows& x) {
  const SsmSpec& ssm = call.layer.ssm;
  const MambaWeights& weights = mamba(call.weights);
  ForwardContext& context = call.context;
  const MambaRows rows(ssm, context);
  const std::vector<float> none;
  const LinearId at{.layer = static_cast<int32_t>(call.index)};
  project(context, context.normed.as<float>(), x, {{at.of(LinearKind::ssm_in), weights.in, none, rows.xz}});
  convolve(call, rows);
  project(context, rows.x, rounded(context, weights.x, rows.x, x.tokens),
          {{at.of(LinearKind::ssm_x), weights.x, none, rows.params}});
  for_rows(context, x.tokens, ssm.rank,
           [&](int64_t t) { std::copy_n(rows.params + t * params_width(ssm), ssm.rank, rows.rank + t * ssm.rank); });
  project(context, rows.rank, rounded(context, weights.step, rows.rank, x.tokens),
          {{at.of(LinearKind::ssm_dt), weights.step, weights.step_bias, rows.step}});
  scan(call, rows);
}

MixedRows scanned_rows(const LayerSpec& layer, ForwardContext& context) {
  return {MambaRows(layer.ssm, context).x, layer.ssm.inner};
}

void finish_mamba(const MixerCall& call) {
  ForwardContext& context = call.context;
  const MambaWeights& weights = mamba(call.weights);
  const float* y = MambaRows(call.layer.ssm, context).x;
  const std::vector<float> none;
  project(
      context, y, rounded(context, weights.out, y, call.batch.size()),
      {{{static_cast<int32_t>(call.index), LinearKind::ssm_out}, weights.out, none, context.block_out.as<float>()}});
}

}  // namespace

const Mixer kMambaMixer = {
    .name = "mamba",
    .summary = "A causal convolution and a selective state space; a stream keeps a state of fixed size",
    .paper = "Gu and Dao, 2023, Mamba: Linear-Time Sequence Modeling with Selective State Spaces",
    .test = "tests/properties/recurrent_test.cc",
    .state_kind = StateKind::recurrent,
    .problem = mamba_problem,
    .state = mamba_state,
    .declare = declare_mamba,
    .load = load_mamba,
    .first = in_matrix,
    .begin = begin_mamba,
    .rows = scanned_rows,
    .finish = finish_mamba,
};

}  // namespace millrace
