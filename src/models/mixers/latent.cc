// Multi-head latent attention (DeepSeek-AI, 2024, DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts
// Language Model), in its absorbed form. Of a token the KV cache holds one row, which all heads share:
//
//   [rank] normalized latent | [rotated] key
//
// A head's key is W_UK latent beside the rotated key, its value W_UV latent. Neither is ever formed: with
// q . (W_UK latent) = (W_UK^T q) . latent, a query is multiplied by W_UK^T instead, and the sum of the latents,
// weighted by attention, by W_UV. What is left is attention with one KV head, keys of rank + rotated dims, and values
// that are the first rank numbers of their keys:
//
//   x -> latent, key: norm, rotate, store         x -> queries: rotate, W_UK^T -> attend -> W_UV -> output
//
// The products with W_UK^T and W_UV are one small matrix a head; they run as one job, and hooks do not see them.
#include <fmt/format.h>

#include <algorithm>

#include "attention/full.h"
#include "kernels/activation.h"
#include "models/arch/common.h"
#include "models/blocks/blocks.h"
#include "models/mixers/mixer.h"
#include "models/weight_loader.h"

namespace millrace {
namespace {

struct LatentWeights final : MixerWeights {
  Weight q_a, q;  // without a query rank, q_a is absent and q reads the layer's input
  Weight kv_a;
  std::vector<float> q_a_norm, kv_a_norm;
  std::vector<Weight> k_up;  // W_UK^T of each head, [rank, unrotated]
  std::vector<Weight> v_up;  // W_UV of each head, [value, rank]
  Weight output;

  std::vector<Weight*> matrices() override {
    std::vector<Weight*> all = {&q_a, &q, &kv_a, &output};
    for (auto* heads : {&k_up, &v_up})
      for (Weight& head : *heads) all.push_back(&head);
    return all;
  }
};

const LatentWeights& latent(const LayerWeights& weights) { return static_cast<const LatentWeights&>(*weights.mixer); }

// The widest row of `cols` values, rounded for any format.
int64_t widest_rounded_row(int64_t cols) {
  int64_t bytes = 0;
  for (Activation kind : kActivations) bytes = std::max(bytes, activation_row_bytes(kind, cols));
  return bytes;
}

// ForwardContext::mixer, divided.
struct LatentRows {
  float* q;                     // [tokens, heads * query]
  float* q_latent;              // [tokens, query_rank]
  float* values;                // [tokens, heads * value]; the same memory as q, which is not needed by then
  uint8_t* heads;               // [heads][tokens] rows, rounded for a head's matrix
  std::span<LinearPart> parts;  // one a head

  static int64_t wide(const LayerSpec& layer) {
    return layer.heads * std::max(layer.latent.query(), layer.latent.value);
  }
  static int64_t head_row(const LatentSpec& sizes) { return widest_rounded_row(std::max(sizes.rank, sizes.unrotated)); }
  static int64_t floats(const LayerSpec& layer) { return (wide(layer) + layer.latent.query_rank + 15) / 16 * 16; }
  static int64_t bytes(const LayerSpec& layer, int64_t tokens) {
    return tokens * (4 * floats(layer) + layer.heads * head_row(layer.latent)) +
           layer.heads * static_cast<int64_t>(sizeof(LinearPart));
  }

  LatentRows(const LayerSpec& layer, ForwardContext& context) {
    const int64_t tokens = context.limits().tokens;
    q = values = context.mixer.as<float>();
    q_latent = q + tokens * wide(layer);
    heads = context.mixer.data() + 4 * tokens * floats(layer);
    uint8_t* last = heads + tokens * layer.heads * head_row(layer.latent);
    parts = {reinterpret_cast<LinearPart*>(last), static_cast<size_t>(layer.heads)};
  }
};

std::string latent_problem(const ArchSpec& spec, const LayerSpec& layer) {
  const LatentSpec& sizes = layer.latent;
  if (layer.heads < 1 || sizes.rank < 1 || sizes.rotated < 2 || sizes.rotated % 2 != 0 || sizes.unrotated < 1 ||
      sizes.value < 1 || sizes.query_rank < 0)
    return fmt::format("latent attention of {} heads, a latent of {} values, keys of {} + {} and values of {} dims",
                       layer.heads, sizes.rank, sizes.unrotated, sizes.rotated, sizes.value);
  const int64_t widest = std::max({sizes.rank + sizes.rotated, sizes.query(), sizes.value});
  if (widest > kMaxWidth || layer.heads > kMaxWidth / widest)
    return fmt::format("{} heads of {} dims", layer.heads, widest);
  if (layer.rope < 0 || spec.ropes[static_cast<size_t>(layer.rope)].rotated != sizes.rotated)
    return fmt::format("rope does not rotate the {} dims of the shared key", sizes.rotated);
  return {};
}

KvLayer latent_state(const LayerSpec& layer) {
  return {.kv_heads = 1, .head_dim = layer.head_dim, .values_in_keys = true, .heads_each = layer.heads};
}

void declare_latent(const LayerSpec& layer, const ForwardLimits& limits, int threads, ForwardSizes& sizes) {
  const int64_t q_width = layer.heads * layer.head_dim;
  if (layer.latent.query_rank > 0) sizes.reads(layer.latent.query_rank);
  sizes.reads(layer.heads * layer.latent.value);
  ForwardSizes::grow(sizes.q_width, q_width);
  ForwardSizes::grow(sizes.kv_width, layer.head_dim);
  ForwardSizes::grow(sizes.partials, 4 * attention_scratch_floats(threads, limits.context, layer.heads, layer.head_dim,
                                                                  1, layer.value_dim, limits.switches.attention));
  ForwardSizes::grow(sizes.mixer, LatentRows::bytes(layer, limits.tokens));
}

// W_UK^T and W_UV of every head, from two stacks or, interleaved by head, from one matrix [heads, unrotated + value].
Result<void> load_heads(WeightLoader& loader, const std::string& prefix, const LayerSpec& layer, LatentWeights& own) {
  const LatentSpec& sizes = layer.latent;
  const std::string both = prefix + "attn_kv_b.weight", k = prefix + "attn_k_b.weight", v = prefix + "attn_v_b.weight";
  const bool split = loader.find(k) != nullptr;
  const int64_t both_rows = sizes.unrotated + sizes.value;
  for (int64_t h = 0; h < layer.heads; ++h) {
    if (split) {
      MILLRACE_TRY(own.k_up.emplace_back(),
                   loader.rows_of(k, layer.heads * sizes.rank, h * sizes.rank, sizes.rank, sizes.unrotated));
      MILLRACE_TRY(own.v_up.emplace_back(),
                   loader.rows_of(v, layer.heads * sizes.value, h * sizes.value, sizes.value, sizes.rank));
    } else {
      MILLRACE_TRY(own.k_up.emplace_back(),
                   loader.transpose_of(both, layer.heads * both_rows, h * both_rows, sizes.unrotated, sizes.rank));
      MILLRACE_TRY(own.v_up.emplace_back(), loader.rows_of(both, layer.heads * both_rows,
                                                           h * both_rows + sizes.unrotated, sizes.value, sizes.rank));
    }
    for (const Weight* head : {&own.k_up.back(), &own.v_up.back()})
      if (head->parts || head->codebook)
        return Error::unsupported(fmt::format("tensor {}: has {}, which the matrices of latent heads cannot have",
                                              head->name, head->codebook ? "a codebook" : "weight parts"));
  }
  return {};
}

Result<void> load_latent(WeightLoader& loader, const std::string& prefix, const ArchSpec& spec, const LayerSpec& layer,
                         LayerWeights& weights) {
  const LatentSpec& sizes = layer.latent;
  const int64_t queries = layer.heads * sizes.query();
  auto own = std::make_unique<LatentWeights>();
  if (sizes.query_rank > 0) {
    MILLRACE_TRY(own->q_a, loader.matrix(prefix + "attn_q_a.weight", sizes.query_rank, spec.width));
    MILLRACE_TRY(own->q_a_norm, loader.vector(prefix + "attn_q_a_norm.weight", sizes.query_rank));
    MILLRACE_TRY(own->q, loader.matrix(prefix + "attn_q_b.weight", queries, sizes.query_rank));
  } else {
    MILLRACE_TRY(own->q, loader.matrix(prefix + "attn_q.weight", queries, spec.width));
  }
  MILLRACE_TRY(own->kv_a, loader.matrix(prefix + "attn_kv_a_mqa.weight", sizes.rank + sizes.rotated, spec.width));
  MILLRACE_TRY(own->kv_a_norm, loader.vector(prefix + "attn_kv_a_norm.weight", sizes.rank));
  MILLRACE_TRY_VOID(load_heads(loader, prefix, layer, *own));
  MILLRACE_TRY(own->output, loader.matrix(prefix + "attn_output.weight", spec.width, layer.heads * sizes.value));
  weights.mixer = std::move(own);
  return {};
}

const Weight& first_latent_matrix(const LayerWeights& weights) {
  const LatentWeights& own = latent(weights);
  return own.q_a.present() ? own.q_a : own.q;
}

const std::vector<float> kNoLatentBias;

// The layer's input to rows.q and context.k, [tokens, rank + rotated].
void project_inputs(const MixerCall& call, const ActivationRows& x, const LatentRows& rows) {
  const LatentWeights& own = latent(call.weights);
  ForwardContext& context = call.context;
  const LinearId at{.layer = static_cast<int32_t>(call.index)};
  const float* normed = context.normed.as<float>();
  float* kv = context.k.as<float>();
  if (!own.q_a.present())
    return project(
        context, normed, x,
        {{at.of(LinearKind::q), own.q, kNoLatentBias, rows.q}, {at.of(LinearKind::kv_a), own.kv_a, kNoLatentBias, kv}});
  project(context, normed, x,
          {{at.of(LinearKind::q_a), own.q_a, kNoLatentBias, rows.q_latent},
           {at.of(LinearKind::kv_a), own.kv_a, kNoLatentBias, kv}});
  const int64_t rank = call.layer.latent.query_rank;
  const ActivationRows in = activation_rows(own.q.format->activation, x.tokens, rank, context.encoded.data());
  for_rows(context, x.tokens, 2 * rank, [&](int64_t t) {
    float* row = rows.q_latent + t * rank;
    context.kernels().rms_norm(row, own.q_a_norm.data(), call.spec.norm_offset, call.spec.norm_eps, rank, row);
    encode_row(context.kernels(), in, t, row, context.encoded.data());
  });
  project(context, rows.q_latent, in, {{at.of(LinearKind::q_b), own.q, kNoLatentBias, rows.q}});
}

// Where a token's row is in the pool.
uint8_t* stored_row(const MixerCall& call, int64_t token) {
  const int64_t layer = call.context.first_kv_layer + call.index, group = call.context.kv().group_of(layer);
  KvPool& kv = call.context.kv().group(group);
  const std::vector<BatchSpan>& spans = call.batch.spans_of(group);
  const BatchSpan& span = *std::prev(std::ranges::upper_bound(spans, token, {}, &BatchSpan::begin));
  const int64_t slot = span.first_slot + token - span.begin, block_tokens = kv.layout().block_tokens;
  const BlockId block = call.batch.tables(group)[static_cast<size_t>(span.table + slot / block_tokens)];
  return kv.keys(layer, block, 0) + slot % block_tokens * kv.row_bytes(layer);
}

// Norms, rotates and stores one token's row; rotates and scales its queries, whose rotated parts go to context.q, and
// the others, rounded, to `in`.
void prepare_token(const MixerCall& call, const LatentRows& rows, const ActivationRows& in, const RowCodec& codec,
                   int64_t t) {
  const LatentSpec& sizes = call.layer.latent;
  const KernelTable& kernels = call.context.kernels();
  const float* cos = call.context.rope.as<float>();
  for (int r = 0; r < call.layer.rope; ++r) cos += call.context.limits().tokens * call.spec.ropes[r].rotated;
  cos += t * sizes.rotated;
  const float* sin = cos + sizes.rotated / 2;
  const bool half = call.spec.rope_style == RopeStyle::half;

  float* key = call.context.k.as<float>() + t * call.layer.head_dim;
  kernels.rms_norm(key, latent(call.weights).kv_a_norm.data(), call.spec.norm_offset, call.spec.norm_eps, sizes.rank,
                   key);
  kernels.rope(key + sizes.rank, cos, sin, sizes.rotated, half);
  codec.encode(key, stored_row(call, t), call.layer.head_dim);

  const int64_t heads = call.layer.heads, tokens = in.tokens;
  float* q = rows.q + t * heads * sizes.query();
  float* absorbed = call.context.q.as<float>() + t * heads * call.layer.head_dim;
  kernels.scale(q, call.spec.attention_scale, heads * sizes.query());
  for (int64_t h = 0; h < heads; ++h, q += sizes.query(), absorbed += call.layer.head_dim) {
    kernels.rope(q + sizes.unrotated, cos, sin, sizes.rotated, half);
    std::copy_n(q + sizes.unrotated, sizes.rotated, absorbed + sizes.rank);
    encode_row(kernels, in, h * tokens + t, q, rows.heads);
  }
}

// Rounded rows of every head, in the order [heads][tokens], times the head's matrix; `y` [tokens, y_stride], where a
// head's outputs are `apart` floats from the next one's.
void multiply_heads(const MixerCall& call, const std::vector<Weight>& matrices, const ActivationRows& x,
                    const LatentRows& rows, float* y, int64_t y_stride, int64_t apart) {
  for (size_t h = 0; h < matrices.size(); ++h) {
    ActivationRows own = x;
    own.data += static_cast<int64_t>(h) * x.tokens * x.stride;
    rows.parts[h] = {.weight = &matrices[h], .x = own, .y = y + static_cast<int64_t>(h) * apart, .y_stride = y_stride};
  }
  linear(call.context.pool(), rows.parts);
}

void begin_latent(const MixerCall& call, const ActivationRows& x) {
  const LatentWeights& own = latent(call.weights);
  ForwardContext& context = call.context;
  const LatentRows rows(call.layer, context);
  project_inputs(call, x, rows);
  const ActivationRows in =
      activation_rows(own.k_up[0].format->activation, x.tokens, call.layer.latent.unrotated, rows.heads);
  const RowCodec& codec = *context.kernels().find_codec(context.kv().layout().format);
  for_rows(context, x.tokens, call.layer.heads * call.layer.head_dim,
           [&](int64_t t) { prepare_token(call, rows, in, codec, t); });
  const int64_t head_dim = call.layer.head_dim;
  multiply_heads(call, own.k_up, in, rows, context.q.as<float>(), call.layer.heads * head_dim, head_dim);
  complete_keys(call.spec, call.layer, call.index, call.batch, context);
}

MixedRows absorbed_rows(const LayerSpec& layer, ForwardContext& context) {
  return {context.q.as<float>(), layer.heads * layer.head_dim};
}

void finish_latent(const MixerCall& call) {
  const LatentWeights& own = latent(call.weights);
  const LatentSpec& sizes = call.layer.latent;
  ForwardContext& context = call.context;
  const KernelTable& kernels = context.kernels();
  const LatentRows rows(call.layer, context);
  const int64_t tokens = call.batch.size(), heads = call.layer.heads, width = heads * sizes.value;
  const AttentionLayer attention{.layer = context.first_kv_layer + call.index,
                                 .heads = heads,
                                 .kv_heads = 1,
                                 .head_dim = call.layer.head_dim,
                                 .softcap = call.spec.attention_softcap,
                                 .group = context.kv().group_of(context.first_kv_layer + call.index),
                                 .value_dim = sizes.rank,
                                 .switches = context.limits().switches.attention};
  float* attended = context.attended.as<float>();
  attend(call.batch, attention, kernels, context.pool(), context.kv().of(attention.layer), context.q.as<float>(),
         attended, context.limits().context, context.partials.as<float>(), context.block_pointers.data(), nullptr,
         nullptr, &context.key_lifetimes);
  for (ForwardObserver* observer : context.hooks.observers()) observer->attended(attention, call.batch, attended);

  const ActivationRows sums = activation_rows(own.v_up[0].format->activation, tokens, sizes.rank, rows.heads);
  for_rows(context, tokens * heads, sizes.rank, [&](int64_t i) {
    encode_row(kernels, sums, i % heads * tokens + i / heads, attended + i * sizes.rank, rows.heads);
  });
  multiply_heads(call, own.v_up, sums, rows, rows.values, width, sizes.value);
  const ActivationRows out = encode_activations(kernels, context.pool(), own.output.format->activation, rows.values,
                                                width, tokens, width, context.encoded.data());
  project(context, rows.values, out,
          {{{static_cast<int32_t>(call.index), LinearKind::output},
            own.output,
            kNoLatentBias,
            context.block_out.as<float>()}});
  weigh_outputs(attention.group, call.batch, call.spec.width, context);
}

}  // namespace

const Mixer kLatentMixer = {
    .name = "latent",
    .summary =
        "Attention over one compressed row per token that all heads share, and from which they compute keys and "
        "values",
    .paper = "DeepSeek-AI, 2024, DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model",
    .test = "tests/properties/latent_test.cc",
    .state_kind = StateKind::latent,
    .problem = latent_problem,
    .state = latent_state,
    .declare = declare_latent,
    .load = load_latent,
    .first = first_latent_matrix,
    .begin = begin_latent,
    .rows = absorbed_rows,
    .finish = finish_latent,
};

}  // namespace millrace
