// Gated delta net (Yang, Kautz and Hatamizadeh, 2024, Gated Delta Networks: Improving Mamba2 with Delta Rule): a causal
// convolution over the last tokens, then a matrix for each value head that maps keys to values. Each token lets the
// matrix decay, and replaces a part of the value that it has for the token's key. A stream keeps the convolution's last
// inputs and the matrix of every value head, both f32, in its slot of the StatePool:
//
//   [taps - 1][2 * groups * state + inner] window | matrices, stored as head_matrices.h says
//
// The rows of attn_qkv are the queries and keys of `groups` key heads of `state` dims, then the values; the convolution
// is over all of them. Several value heads read one key head (SsmSpec::tiled).
//
// Tokens of a stream are processed in order, one after the other, and the columns of matrices independently: the bits
// do not depend on chunks, threads or other streams. decisions/0067-delta-rule-by-token.md says why not in chunks.
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

constexpr float kUnitNormEps = 1e-6f;  // added to the sum of the squares of a query or key

struct DeltaWeights final : MixerWeights {
  Weight qkv, gate;
  Weight beta, alpha;  // without alpha: `beta` has the rows of both, of each key head those of beta, then of alpha
  Weight out;
  std::vector<float> step_bias;  // [heads]
  std::vector<float> conv;       // [taps, convolved]
  std::vector<float> a;          // [heads], at most 0
  std::vector<float> norm;       // [inner / heads]

  std::vector<Weight*> matrices() override { return {&qkv, &gate, &beta, &alpha, &out}; }
};

const DeltaWeights& delta_net(const LayerWeights& weights) { return static_cast<const DeltaWeights&>(*weights.mixer); }

int64_t delta_keys(const SsmSpec& ssm) { return ssm.groups * ssm.state; }
int64_t delta_convolved(const SsmSpec& ssm) { return 2 * delta_keys(ssm) + ssm.inner; }

// Context::mixer, divided.
struct DeltaRows {
  float* in;    // [tokens, convolved]: queries, keys and values
  float* gate;  // [tokens, inner]
  float* beta;  // [tokens, heads], and alpha after it; or [tokens, 2 * heads]. Then the rate and decay, see set_steps()
  float* mixed;  // [tokens, convolved], after the convolution
  float* y;      // [tokens, inner]

  DeltaRows(const SsmSpec& ssm, ForwardContext& context) {
    const int64_t tokens = context.limits().tokens;
    in = context.mixer.as<float>();
    gate = in + tokens * delta_convolved(ssm);
    beta = gate + tokens * ssm.inner;
    mixed = beta + tokens * 2 * ssm.heads;
    y = mixed + tokens * delta_convolved(ssm);
  }
  static int64_t values(const SsmSpec& ssm) { return 2 * (delta_convolved(ssm) + ssm.inner + ssm.heads); }
};

std::string delta_problem(const ArchSpec&, const LayerSpec& layer) {
  const SsmSpec& ssm = layer.ssm;
  if (ssm.inner < 1 || ssm.state < 1 || ssm.taps < 1 || ssm.heads < 1 || ssm.groups < 1 || ssm.inner % ssm.heads != 0 ||
      ssm.heads % ssm.groups != 0)
    return fmt::format("a gated delta net of {} values in {} heads, {} key heads of {} dims, {} taps", ssm.inner,
                       ssm.heads, ssm.groups, ssm.state, ssm.taps);
  if (delta_keys(ssm) > kMaxWidth)
    return fmt::format("a gated delta net of {} key heads of {} dims", ssm.groups, ssm.state);
  return {};
}

KvLayer delta_state(const LayerSpec& layer) {
  const SsmSpec& ssm = layer.ssm;
  return {.kv_heads = 0, .head_dim = 0, .state_values = (ssm.taps - 1) * delta_convolved(ssm) + ssm.inner * ssm.state};
}

void declare_delta(const LayerSpec& layer, const ForwardLimits& limits, int, ForwardSizes& sizes) {
  sizes.reads(layer.ssm.inner);
  ForwardSizes::grow(sizes.mixer, 4 * limits.tokens * DeltaRows::values(layer.ssm));
}

Result<std::vector<float>> load_delta_decay(WeightLoader& loader, const std::string& name, const SsmSpec& ssm) {
  MILLRACE_TRY(auto a, loader.vector(name, ssm.heads));
  for (float& one : a) {
    if (ssm.log_a) one = -std::exp(one);
    if (!(one <= 0.0f && std::isfinite(one)))
      return Error::corrupt(fmt::format("tensor {}: a decay rate of {}; all must be finite and at most 0", name, one));
  }
  return a;
}

Result<void> load_delta_net(WeightLoader& loader, const std::string& prefix, const ArchSpec& spec,
                            const LayerSpec& layer, LayerWeights& weights) {
  const SsmSpec& ssm = layer.ssm;
  const int64_t channels = delta_convolved(ssm);
  auto own = std::make_unique<DeltaWeights>();
  MILLRACE_TRY(own->qkv, loader.matrix(prefix + "attn_qkv.weight", channels, spec.width));
  MILLRACE_TRY(own->gate, loader.matrix(prefix + "attn_gate.weight", ssm.inner, spec.width));
  if (const std::string fused = prefix + "ssm_ba.weight"; loader.find(fused)) {
    MILLRACE_TRY(own->beta, loader.matrix(fused, 2 * ssm.heads, spec.width));
  } else {
    MILLRACE_TRY(own->beta, loader.matrix(prefix + "ssm_beta.weight", ssm.heads, spec.width));
    MILLRACE_TRY(own->alpha, loader.matrix(prefix + "ssm_alpha.weight", ssm.heads, spec.width));
  }
  MILLRACE_TRY(const auto conv, loader.table(prefix + "ssm_conv1d.weight", channels, ssm.taps));
  own->conv.resize(conv.size());
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t k = 0; k < ssm.taps; ++k)
      own->conv[static_cast<size_t>(k * channels + c)] = conv[static_cast<size_t>(c * ssm.taps + k)];
  MILLRACE_TRY(own->step_bias, loader.vector(prefix + "ssm_dt.bias", ssm.heads));
  MILLRACE_TRY(own->a, load_delta_decay(loader, prefix + "ssm_a", ssm));
  MILLRACE_TRY(own->norm, loader.vector(prefix + "ssm_norm.weight", ssm.inner / ssm.heads));
  MILLRACE_TRY(own->out, loader.matrix(prefix + "ssm_out.weight", spec.width, ssm.inner));
  weights.mixer = std::move(own);
  return {};
}

const Weight& qkv_matrix(const LayerWeights& weights) { return delta_net(weights).qkv; }

void project_delta(const MixerCall& call, const ActivationRows& x, const DeltaRows& rows) {
  ForwardContext& context = call.context;
  const DeltaWeights& weights = delta_net(call.weights);
  const LinearId at{.layer = static_cast<int32_t>(call.index)};
  const float* normed = context.normed.as<float>();
  const std::vector<float> none;
  const Projection qkv{at.of(LinearKind::ssm_in), weights.qkv, none, rows.in};
  const Projection gate{at.of(LinearKind::ssm_gate), weights.gate, none, rows.gate};
  const Projection beta{at.of(LinearKind::ssm_beta), weights.beta, none, rows.beta};
  if (!weights.alpha.present()) return project(context, normed, x, {qkv, gate, beta});
  project(context, normed, x,
          {qkv,
           gate,
           beta,
           {at.of(LinearKind::ssm_alpha), weights.alpha, none,
            rows.beta + context.limits().tokens * call.layer.ssm.heads}});
}

// Place in rows.beta of a head's logit of the update rate for the batch's first token. The step size before bias and
// softplus is `alpha` floats behind it, and the next token's logit `stride` floats.
struct StepPlace {
  int64_t first, alpha, stride;
};

StepPlace step_place(const MixerCall& call, int64_t head) {
  const SsmSpec& ssm = call.layer.ssm;
  if (delta_net(call.weights).alpha.present()) return {head, call.context.limits().tokens * ssm.heads, ssm.heads};
  const int64_t each = ssm.heads / ssm.groups;
  return {2 * (head / each) * each + head % each, each, 2 * ssm.heads};
}

// Replaces a value head's logits by the rates of update, sigmoid(beta), and its step sizes by the decays, exp(s * a)
// with s = softplus(alpha + bias).
void set_steps(const MixerCall& call, const DeltaRows& rows, const BatchSpan& span, int64_t head) {
  const DeltaWeights& weights = delta_net(call.weights);
  const StepPlace place = step_place(call, head);
  const float bias = weights.step_bias[static_cast<size_t>(head)];
  const double a = weights.a[static_cast<size_t>(head)];
  for (int64_t t = span.begin; t < span.begin + span.count; ++t) {
    float* rate = rows.beta + place.first + t * place.stride;
    float* decay = rate + place.alpha;
    *rate = static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(*rate))));
    *decay = static_cast<float>(std::exp(softplus(static_cast<double>(*decay + bias)) * a));
  }
}

// rows.mixed = silu(conv(rows.in)) of some channels of a span; a stream's first token begins with an empty window.
void convolve_delta(const MixerCall& call, const DeltaRows& rows, const BatchSpan& whole, int64_t first,
                    int64_t channels) {
  const SsmSpec& ssm = call.layer.ssm;
  const int64_t width = delta_convolved(ssm);
  run_marked_pieces(call, whole, {first, channels, ssm.taps - 1, width}, [&](const BatchSpan& span) {
    float* window = state_values(call, span.state) + first;
    for (int64_t k = 0; span.first_slot == 0 && k < ssm.taps - 1; ++k) std::fill_n(window + k * width, channels, 0.0f);
    call.context.kernels().causal_conv({.tokens = span.count,
                                        .channels = channels,
                                        .taps = ssm.taps,
                                        .stride = width,
                                        .weight = delta_net(call.weights).conv.data() + first,
                                        .window = window,
                                        .x = rows.in + span.begin * width + first,
                                        .x_stride = width,
                                        .y = rows.mixed + span.begin * width + first,
                                        .y_stride = width});
  });
}

// Divides a head's queries or keys by their lengths, and queries by the square root of their dims, too.
void norm_delta_keys(const MixerCall& call, const DeltaRows& rows, const BatchSpan& span, int64_t head) {
  const SsmSpec& ssm = call.layer.ssm;
  const KernelTable& kernels = call.context.kernels();
  const auto dims = static_cast<float>(ssm.state);
  for (int64_t t = span.begin; t < span.begin + span.count; ++t) {
    float* x = rows.mixed + t * delta_convolved(ssm) + head * ssm.state;
    kernels.rms_norm(x, nullptr, 0.0f, kUnitNormEps / dims, ssm.state, x);
    kernels.scale(x, head < ssm.groups ? 1.0f / dims : 1.0f / std::sqrt(dims), ssm.state);
  }
}

// Head `head` of one span: of the queries' heads, then the keys', then the values'.
void prepare_head(const MixerCall& call, const DeltaRows& rows, const BatchSpan& span, int64_t head) {
  const SsmSpec& ssm = call.layer.ssm;
  if (head < 2 * ssm.groups) {
    convolve_delta(call, rows, span, head * ssm.state, ssm.state);
    norm_delta_keys(call, rows, span, head);
  } else {
    const int64_t value_head = head - 2 * ssm.groups, dim = ssm.inner / ssm.heads;
    convolve_delta(call, rows, span, 2 * delta_keys(ssm) + value_head * dim, dim);
    set_steps(call, rows, span, value_head);
  }
}

// Some columns of a value head's matrix S over a span: S = decay * S, then S grows by the outer product of k and
// rate * (v - S^T k), and y = S^T q.
void update_columns(const MixerCall& call, const DeltaRows& rows, const BatchSpan& span, MatrixColumns at) {
  const SsmSpec& ssm = call.layer.ssm;
  const int64_t dim = ssm.inner / ssm.heads, width = delta_convolved(ssm);
  const int64_t group = ssm.tiled ? at.head % ssm.groups : at.head / (ssm.heads / ssm.groups);
  const StepPlace steps = step_place(call, at.head);
  const float* rate = rows.beta + steps.first + span.begin * steps.stride;
  const float* q = rows.mixed + span.begin * width + group * ssm.state;
  float* state = at.of(state_values(call, span.state) + (ssm.taps - 1) * width, ssm.state, dim);
  if (span.first_slot == 0) std::fill_n(state, ssm.state * at.count, 0.0f);
  matrix_scan_kernel(call.context.kernels().isa)(
      {.tokens = span.count,
       .keys = ssm.state,
       .columns = at.count,
       .corrects = true,
       .state = state,
       .q = q,
       .k = q + delta_keys(ssm),
       .key_stride = width,
       .v = rows.mixed + span.begin * width + 2 * delta_keys(ssm) + at.head * dim + at.first,
       .v_stride = width,
       .decay = rate + steps.alpha,
       .rate = rate,
       .rate_stride = steps.stride,
       .y = rows.y + span.begin * ssm.inner + at.head * dim + at.first,
       .y_stride = ssm.inner});
}

// rows.y = norm(rows.y) * silu(rows.gate), each head of each token.
void gate_delta_heads(const MixerCall& call, const DeltaRows& rows) {
  const SsmSpec& ssm = call.layer.ssm;
  const KernelTable& kernels = call.context.kernels();
  const int64_t dim = ssm.inner / ssm.heads;
  const float* norm = delta_net(call.weights).norm.data();
  for_rows(call.context, call.batch.size(), 2 * ssm.inner, [&](int64_t t) {
    for (int64_t at = t * ssm.inner; at < (t + 1) * ssm.inner; at += dim)
      kernels.rms_norm(rows.y + at, norm, 0.0f, call.spec.norm_eps, dim, rows.y + at);
    kernels.silu_mul(rows.gate + t * ssm.inner, rows.y + t * ssm.inner, rows.y + t * ssm.inner, ssm.inner);
  });
}

void begin_delta_net(const MixerCall& call, const ActivationRows& x) {
  const SsmSpec& ssm = call.layer.ssm;
  const DeltaRows rows(ssm, call.context);
  project_delta(call, x, rows);
  const int64_t spans = std::ssize(call.batch.spans), heads = 2 * ssm.groups + ssm.heads;
  for_rows(call.context, spans * heads, 8 * ssm.taps * ssm.state * call.batch.size() / spans,
           [&](int64_t i) { prepare_head(call, rows, call.batch.spans[static_cast<size_t>(i / heads)], i % heads); });
  const int64_t window = (ssm.taps - 1) * delta_convolved(ssm);
  for_matrix_columns(call, window,
                     [&](const BatchSpan& span, MatrixColumns at) { update_columns(call, rows, span, at); });
  gate_delta_heads(call, rows);
}

MixedRows delta_rows(const LayerSpec& layer, ForwardContext& context) {
  return {DeltaRows(layer.ssm, context).y, layer.ssm.inner};
}

void finish_delta_net(const MixerCall& call) {
  ForwardContext& context = call.context;
  const Weight& out = delta_net(call.weights).out;
  const float* y = DeltaRows(call.layer.ssm, context).y;
  const std::vector<float> none;
  project(context, y,
          encode_activations(context.kernels(), context.pool(), out.format->activation, y, out.cols, call.batch.size(),
                             out.cols, context.encoded.data()),
          {{{static_cast<int32_t>(call.index), LinearKind::ssm_out}, out, none, context.block_out.as<float>()}});
}

}  // namespace

const Mixer kGatedDeltaNetMixer = {
    .name = "gated_delta_net",
    .summary =
        "A causal convolution and a matrix of each head that a token decays and corrects; a stream keeps a state of "
        "fixed size",
    .paper = "Yang, Kautz and Hatamizadeh, 2024, Gated Delta Networks: Improving Mamba2 with Delta Rule",
    .test = "tests/properties/recurrent_test.cc",
    .state_kind = StateKind::recurrent,
    .problem = delta_problem,
    .state = delta_state,
    .declare = declare_delta,
    .load = load_delta_net,
    .first = qkv_matrix,
    .begin = begin_delta_net,
    .rows = delta_rows,
    .finish = finish_delta_net,
};

}  // namespace millrace
