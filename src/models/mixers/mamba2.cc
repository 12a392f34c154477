// Mamba-2's mixer (Dao and Gu, 2024, Transformers are SSMs: Generalized Models and Efficient Algorithms Through
// Structured State Space Duality): a causal convolution over the last tokens, then a linear recurrence. Channels are
// heads, each of which has one step size and one decay per token. Groups of heads share B and C. A stream keeps the
// convolution's last inputs and the state of every head, both f32, in its slot of the StatePool:
//
//   [taps - 1][inner + 2 * groups * state] window | matrices, stored as head_matrices.h says
//
// A row of the first product is z | x | B | C | step sizes; the convolution is over x, B and C.
//
// Tokens of a stream are processed in order, one after the other, and the columns of matrices independently: the bits
// do not depend on chunks, threads or other streams.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/arch/common.h"
#include "models/blocks/blocks.h"
#include "models/mixers/head_matrices.h"
#include "models/mixers/marked_pieces.h"
#include "models/weight_loader.h"

namespace millrace {
namespace {

constexpr int64_t kConvChannels = 128;  // of one unit of work

struct Mamba2Weights final : MixerWeights {
  Weight in, out;
  std::vector<float> step_bias;  // [heads]
  std::vector<float> conv;       // [taps, convolved]
  std::vector<float> conv_bias;  // [convolved]; empty: none
  std::vector<float> a;          // [heads], at most 0
  std::vector<float> d;          // [heads]
  std::vector<float> norm;       // [inner]; empty: none

  std::vector<Weight*> matrices() override { return {&in, &out}; }
};

const Mamba2Weights& mamba2(const LayerWeights& weights) { return static_cast<const Mamba2Weights&>(*weights.mixer); }

int64_t group_values(const SsmSpec& ssm) { return ssm.groups * ssm.state; }
int64_t convolved(const SsmSpec& ssm) { return ssm.inner + 2 * group_values(ssm); }
int64_t in_width(const SsmSpec& ssm) { return ssm.inner + convolved(ssm) + ssm.heads; }

// Context::mixer, divided.
struct Mamba2Rows {
  float* in;     // [tokens, in_width]
  float* x;      // [tokens, convolved]: x, B and C after the convolution
  float* y;      // [tokens, inner]
  float* steps;  // [tokens, heads] step sizes, and [tokens, heads] decays

  Mamba2Rows(const SsmSpec& ssm, ForwardContext& context) {
    const int64_t tokens = context.limits().tokens;
    in = context.mixer.as<float>();
    x = in + tokens * in_width(ssm);
    y = x + tokens * convolved(ssm);
    steps = y + tokens * ssm.inner;
  }
  static int64_t values(const SsmSpec& ssm) { return in_width(ssm) + convolved(ssm) + ssm.inner + 2 * ssm.heads; }
};

std::string mamba2_problem(const ArchSpec&, const LayerSpec& layer) {
  const SsmSpec& ssm = layer.ssm;
  if (ssm.inner < 1 || ssm.state < 1 || ssm.taps < 1 || ssm.heads < 1 || ssm.groups < 1 || ssm.inner % ssm.heads != 0 ||
      ssm.heads % ssm.groups != 0)
    return fmt::format("a state space of {} channels in {} heads and {} groups, {} values, {} taps", ssm.inner,
                       ssm.heads, ssm.groups, ssm.state, ssm.taps);
  if (group_values(ssm) > kMaxWidth)
    return fmt::format("a state space of {} groups of {} values", ssm.groups, ssm.state);
  for (const float scale : ssm.scales)
    if (!std::isfinite(scale)) return fmt::format("a factor of the state space's input is {}", scale);
  return {};
}

KvLayer mamba2_state(const LayerSpec& layer) {
  const SsmSpec& ssm = layer.ssm;
  return {.kv_heads = 0, .head_dim = 0, .state_values = (ssm.taps - 1) * convolved(ssm) + ssm.inner * ssm.state};
}

void declare_mamba2(const LayerSpec& layer, const ForwardLimits& limits, int, ForwardSizes& sizes) {
  sizes.reads(layer.ssm.inner);
  ForwardSizes::grow(sizes.mixer, 4 * limits.tokens * Mamba2Rows::values(layer.ssm));
}

Result<std::vector<float>> load_head_decay(WeightLoader& loader, const std::string& name, const SsmSpec& ssm) {
  MILLRACE_TRY(auto a, loader.vector(name, ssm.heads));
  for (float& one : a) {
    if (ssm.log_a) one = -std::exp(one);
    if (!(one <= 0.0f && std::isfinite(one)))
      return Error::corrupt(fmt::format("tensor {}: a decay rate of {}; all must be finite and at most 0", name, one));
  }
  return a;
}

Result<void> load_mamba2(WeightLoader& loader, const std::string& prefix, const ArchSpec& spec, const LayerSpec& layer,
                         LayerWeights& weights) {
  const SsmSpec& ssm = layer.ssm;
  const int64_t channels = convolved(ssm);
  auto own = std::make_unique<Mamba2Weights>();
  MILLRACE_TRY(own->in, loader.matrix(prefix + "ssm_in.weight", in_width(ssm), spec.width));
  MILLRACE_TRY(const auto conv, loader.table(prefix + "ssm_conv1d.weight", channels, ssm.taps));
  own->conv.resize(conv.size());
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t k = 0; k < ssm.taps; ++k)
      own->conv[static_cast<size_t>(k * channels + c)] = conv[static_cast<size_t>(c * ssm.taps + k)];
  if (ssm.conv_bias) {
    MILLRACE_TRY(own->conv_bias, loader.optional_vector(prefix + "ssm_conv1d.bias", channels));
  }
  MILLRACE_TRY(own->step_bias, loader.vector(prefix + "ssm_dt.bias", ssm.heads));
  MILLRACE_TRY(own->a, load_head_decay(loader, prefix + "ssm_a", ssm));
  MILLRACE_TRY(own->d, loader.vector(prefix + "ssm_d", ssm.heads));
  if (const std::string norm = prefix + "ssm_norm.weight"; ssm.gated_norm || loader.find(norm)) {
    MILLRACE_TRY(own->norm, loader.vector(norm, ssm.inner));
  }
  MILLRACE_TRY(own->out, loader.matrix(prefix + "ssm_out.weight", spec.width, ssm.inner));
  weights.mixer = std::move(own);
  return {};
}

const Weight& in_matrix_of_heads(const LayerWeights& weights) { return mamba2(weights).in; }

// Multiplies the five parts of the first product's rows by their factors.
void scale_parts(const MixerCall& call, const Mamba2Rows& rows) {
  const SsmSpec& ssm = call.layer.ssm;
  if (std::ranges::all_of(ssm.scales, [](float scale) { return scale == 1.0f; })) return;
  const std::array<int64_t, 5> widths = {ssm.inner, ssm.inner, group_values(ssm), group_values(ssm), ssm.heads};
  for_rows(call.context, call.batch.size(), in_width(ssm), [&](int64_t t) {
    float* part = rows.in + t * in_width(ssm);
    for (size_t i = 0; i < widths.size(); part += widths[i++])
      call.context.kernels().scale(part, ssm.scales[i], widths[i]);
  });
}

// rows.x = silu(conv(x, B, C)) of some channels of a span; a stream's first token begins with an empty window.
void convolve_parts(const MixerCall& call, const Mamba2Rows& rows, const BatchSpan& whole, int64_t first) {
  const SsmSpec& ssm = call.layer.ssm;
  const Mamba2Weights& weights = mamba2(call.weights);
  const int64_t width = convolved(ssm), channels = std::min(kConvChannels, width - first);
  run_marked_pieces(call, whole, {first, channels, ssm.taps - 1, width}, [&](const BatchSpan& span) {
    float* window = state_values(call, span.state) + first;
    for (int64_t k = 0; span.first_slot == 0 && k < ssm.taps - 1; ++k) std::fill_n(window + k * width, channels, 0.0f);
    call.context.kernels().causal_conv({.tokens = span.count,
                                        .channels = channels,
                                        .taps = ssm.taps,
                                        .stride = width,
                                        .weight = weights.conv.data() + first,
                                        .bias = weights.conv_bias.empty() ? nullptr : weights.conv_bias.data() + first,
                                        .window = window,
                                        .x = rows.in + span.begin * in_width(ssm) + ssm.inner + first,
                                        .x_stride = in_width(ssm),
                                        .y = rows.x + span.begin * width + first,
                                        .y_stride = width});
  });
}

// Computes the step sizes s = softplus(step size + bias) of one head over a span, and its decays, exp(s * a).
void set_step_sizes(const MixerCall& call, const Mamba2Rows& rows, const BatchSpan& span, int64_t head) {
  const SsmSpec& ssm = call.layer.ssm;
  const Mamba2Weights& weights = mamba2(call.weights);
  const float bias = weights.step_bias[static_cast<size_t>(head)];
  const double a = weights.a[static_cast<size_t>(head)];
  for (int64_t t = span.begin; t < span.begin + span.count; ++t) {
    const float given = rows.in[t * in_width(ssm) + ssm.inner + convolved(ssm) + head];
    const double step = softplus(static_cast<double>(given + bias));
    float* out = rows.steps + t * ssm.heads + head;
    out[0] = static_cast<float>(step);
    out[call.context.limits().tokens * ssm.heads] = static_cast<float>(std::exp(step * a));
  }
}

void prepare_parts(const MixerCall& call, const Mamba2Rows& rows) {
  const SsmSpec& ssm = call.layer.ssm;
  const int64_t blocks = (convolved(ssm) + kConvChannels - 1) / kConvChannels, units = blocks + ssm.heads;
  const int64_t spans = std::ssize(call.batch.spans);
  for_rows(call.context, spans * units, 8 * ssm.taps * kConvChannels * call.batch.size() / spans, [&](int64_t i) {
    const BatchSpan& span = call.batch.spans[static_cast<size_t>(i / units)];
    if (i % units < blocks)
      convolve_parts(call, rows, span, i % units * kConvChannels);
    else
      set_step_sizes(call, rows, span, i % units - blocks);
  });
}

// Some columns of a head's state over a span: state[n] = decay * state[n] + step * x * B[n], and then
// y = sum over n of C[n] * state[n].
void scan_head_columns(const MixerCall& call, const Mamba2Rows& rows, const BatchSpan& span, MatrixColumns at) {
  const SsmSpec& ssm = call.layer.ssm;
  const int64_t dim = ssm.inner / ssm.heads, width = convolved(ssm);
  const float* x = rows.x + span.begin * width;
  const float* b = x + ssm.inner + at.head / (ssm.heads / ssm.groups) * ssm.state;
  const float* step = rows.steps + span.begin * ssm.heads + at.head;
  float* state = at.of(state_values(call, span.state) + (ssm.taps - 1) * width, ssm.state, dim);
  if (span.first_slot == 0) std::fill_n(state, ssm.state * at.count, 0.0f);
  matrix_scan_kernel(call.context.kernels().isa)({.tokens = span.count,
                                                  .keys = ssm.state,
                                                  .columns = at.count,
                                                  .state = state,
                                                  .q = b + group_values(ssm),
                                                  .k = b,
                                                  .key_stride = width,
                                                  .v = x + at.head * dim + at.first,
                                                  .v_stride = width,
                                                  .decay = step + call.context.limits().tokens * ssm.heads,
                                                  .rate = step,
                                                  .rate_stride = ssm.heads,
                                                  .y = rows.y + span.begin * ssm.inner + at.head * dim + at.first,
                                                  .y_stride = ssm.inner});
}

// rows.y = (rows.y + d * x) * silu(z), and the norm of each group's channels.
void finish_heads(const MixerCall& call, const Mamba2Rows& rows) {
  const SsmSpec& ssm = call.layer.ssm;
  const KernelTable& kernels = call.context.kernels();
  const Mamba2Weights& weights = mamba2(call.weights);
  const int64_t dim = ssm.inner / ssm.heads, group_dim = ssm.inner / ssm.groups;
  for_rows(call.context, call.batch.size(), 3 * ssm.inner, [&](int64_t t) {
    const float* x = rows.x + t * convolved(ssm);
    float* y = rows.y + t * ssm.inner;
    for (int64_t head = 0; head < ssm.heads; ++head)
      kernels.add_scaled(x + head * dim, weights.d[static_cast<size_t>(head)], y + head * dim, dim);
    kernels.silu_mul(rows.in + t * in_width(ssm), y, y, ssm.inner);
    for (int64_t at = 0; !weights.norm.empty() && at < ssm.inner; at += group_dim)
      kernels.rms_norm(y + at, weights.norm.data() + at, 0.0f, call.spec.norm_eps, group_dim, y + at);
  });
}

void begin_mamba2(const MixerCall& call, const ActivationRows& x) {
  ForwardContext& context = call.context;
  const Mamba2Rows rows(call.layer.ssm, context);
  const std::vector<float> none;
  project(context, context.normed.as<float>(), x,
          {{{static_cast<int32_t>(call.index), LinearKind::ssm_in}, mamba2(call.weights).in, none, rows.in}});
  scale_parts(call, rows);
  prepare_parts(call, rows);
  const int64_t window = (call.layer.ssm.taps - 1) * convolved(call.layer.ssm);
  for_matrix_columns(call, window,
                     [&](const BatchSpan& span, MatrixColumns at) { scan_head_columns(call, rows, span, at); });
  finish_heads(call, rows);
}

MixedRows gated_rows(const LayerSpec& layer, ForwardContext& context) {
  return {Mamba2Rows(layer.ssm, context).y, layer.ssm.inner};
}

void finish_mamba2(const MixerCall& call) {
  ForwardContext& context = call.context;
  const Weight& out = mamba2(call.weights).out;
  const float* y = Mamba2Rows(call.layer.ssm, context).y;
  const std::vector<float> none;
  project(context, y,
          encode_activations(context.kernels(), context.pool(), out.format->activation, y, out.cols, call.batch.size(),
                             out.cols, context.encoded.data()),
          {{{static_cast<int32_t>(call.index), LinearKind::ssm_out}, out, none, context.block_out.as<float>()}});
}

}  // namespace

const Mixer kMamba2Mixer = {
    .name = "mamba2",
    .summary =
        "A causal convolution and a state space with one decay for each head; a stream keeps a state of fixed size",
    .paper =
        "Dao and Gu, 2024, Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured "
        "State Space Duality",
    .test = "tests/properties/recurrent_test.cc",
    .state_kind = StateKind::recurrent,
    .problem = mamba2_problem,
    .state = mamba2_state,
    .declare = declare_mamba2,
    .load = load_mamba2,
    .first = in_matrix_of_heads,
    .begin = begin_mamba2,
    .rows = gated_rows,
    .finish = finish_mamba2,
};

}  // namespace millrace
