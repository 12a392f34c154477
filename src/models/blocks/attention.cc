#include <algorithm>
#include <iterator>
#include <utility>

#include "attention/block_lines.h"
#include "attention/block_sparse.h"
#include "attention/block_sums.h"
#include "attention/full.h"
#include "attention/pattern_layers.h"
#include "attention/workers/workers.h"
#include "models/blocks/blocks.h"

namespace millrace {
namespace {

const BatchSpan& span_of(const std::vector<BatchSpan>& spans, int64_t token) {
  return *std::prev(std::ranges::upper_bound(spans, token, {}, &BatchSpan::begin));
}

struct RopeRows {
  const float* rows = nullptr;  // [tokens][cos, sin][half]; null: no rotation
  int64_t half = 0;
};

RopeRows rope_of(const ArchSpec& spec, const LayerSpec& layer, const ForwardContext& context) {
  if (layer.rope < 0) return {};
  const float* rows = context.rope.as<float>();
  for (int r = 0; r < layer.rope; ++r) rows += context.limits().tokens * spec.ropes[r].rotated;
  return {rows, spec.ropes[layer.rope].rotated / 2};
}

// QK-norm of one token's heads.
void norm_heads(const ArchSpec& spec, const KernelTable& kernels, const std::vector<float>& norm, float* heads,
                int64_t count, int64_t head_dim) {
  if (norm.empty()) return;
  if (spec.qk_norm == QkNorm::full)
    kernels.rms_norm(heads, norm.data(), spec.norm_offset, spec.norm_eps, count * head_dim, heads);
  if (spec.qk_norm != QkNorm::head) return;
  for (float* head = heads; head < heads + count * head_dim; head += head_dim)
    kernels.rms_norm(head, norm.data(), spec.norm_offset, spec.norm_eps, head_dim, head);
}

void rotate_heads(const ArchSpec& spec, const KernelTable& kernels, const RopeRows& rope, int64_t token, float* heads,
                  int64_t count, int64_t head_dim) {
  if (!rope.rows || rope.half == 0) return;
  const float* cos = rope.rows + token * 2 * rope.half;
  for (float* head = heads; head < heads + count * head_dim; head += head_dim)
    kernels.rope(head, cos, cos + rope.half, 2 * rope.half, spec.rope_style == RopeStyle::half);
}

// Where the layer's keys and values are, and how they are written.
struct StoredKeys {
  KvPool& kv;
  const Batch& batch;
  const RowCodec& key_codec;
  const RowCodec& value_codec;
  int64_t layer, group;
};

// Of the layer, or of the first of its heads.
StoredKeys stored_keys(const Batch& batch, int64_t layer, ForwardContext& context) {
  KvPool& kv = context.kv().of(layer);
  const KernelTable& kernels = context.kernels();
  return {kv,
          batch,
          *kernels.find_codec(kv.layout().format),
          *kernels.find_codec(kv.layout().values()),
          layer,
          context.kv().group_of(layer)};
}

void store_heads(const StoredKeys& to, const BatchSpan& span, int64_t token, const float* k, const float* v,
                 int64_t kv_heads, int64_t head_dim) {
  const int64_t slot = span.first_slot + token - span.begin;
  const int64_t block_tokens = to.kv.layout().block_tokens, within = slot % block_tokens;
  const BlockId block = to.batch.tables(to.group)[static_cast<size_t>(span.table + slot / block_tokens)];
  const int64_t key_at = within * to.kv.row_bytes(to.layer), value_at = within * to.kv.value_row_bytes(to.layer);
  const int64_t residual_offset = to.kv.residual_bytes(to.layer);
  for (int64_t h = 0; h < kv_heads; ++h) {
    encode_with_residual(to.key_codec, k + h * head_dim, residual_offset, head_dim,
                         to.kv.keys(to.layer, block, h) + key_at);
    encode_with_residual(to.value_codec, v + h * head_dim, residual_offset, head_dim,
                         to.kv.values(to.layer, block, h) + value_at);
  }
}

// Span `s` of the batch. Heads that are apart have slots of their own.
void store_token(const StoredKeys& to, size_t s, int64_t token, const float* k, const float* v, int64_t kv_heads,
                 int64_t head_dim) {
  const int64_t apart = to.kv.layout().tables_per_layer(), each = kv_heads / apart;
  StoredKeys part = to;
  for (int64_t i = 0; i < apart; ++i, ++part.layer, ++part.group, k += each * head_dim, v += each * head_dim)
    store_heads(part, to.batch.spans_of(part.group)[s], token, k, v, each, head_dim);
}

AttentionLayer stored_layer(const ArchSpec& spec, const LayerSpec& layer, int64_t index,
                            const ForwardContext& context) {
  const int64_t stored = context.kv().layer_of(context.first_kv_layer, layer.stored_by(index));
  return {stored,
          layer.heads,
          layer.kv_heads,
          layer.head_dim,
          layer.window,
          spec.attention_softcap,
          context.kv().group_of(stored),
          0,
          context.limits().switches.attention,
          context.kv().layout().tables_per_layer() > 1};
}

// Each head that is apart as a layer of its own, or the layer.
template <typename Use>
void for_stored_layers(const AttentionLayer& layer, const float* q, const Use& use) {
  if (!layer.per_head_tables) return use(layer, q);
  for (int64_t head = 0; head < layer.kv_heads; ++head) use(layer.of_head(head), q + layer.q_column(head));
}

// Copies queries to context.q. Gated attention has queries and gates in context.mixer: [tokens, heads, 2, head_dim].
void take_queries(const LayerSpec& layer, int64_t tokens, ForwardContext& context) {
  const int64_t dim = layer.head_dim, heads = layer.heads;
  for_rows(context, tokens, 2 * heads * dim, [&](int64_t t) {
    const float* both = context.mixer.as<float>() + t * 2 * heads * dim;
    for (int64_t h = 0; h < heads; ++h)
      std::copy_n(both + 2 * h * dim, dim, context.q.as<float>() + (t * heads + h) * dim);
  });
}

// context.attended times the sigmoids of the gates, 0.5 + 0.5 tanh(gate / 2). Overwrites the gates.
void gate_values(const LayerSpec& layer, int64_t tokens, ForwardContext& context) {
  const int64_t dim = layer.head_dim, heads = layer.heads;
  for_rows(context, tokens, 2 * heads * dim, [&](int64_t t) {
    for (int64_t h = t * heads; h < (t + 1) * heads; ++h) {
      float* gate = context.mixer.as<float>() + (2 * h + 1) * dim;
      float* y = context.attended.as<float>() + h * dim;
      context.kernels().softcap(gate, 2.0f, dim);
      for (int64_t d = 0; d < dim; ++d) y[d] *= 0.5f + 0.25f * gate[d];
    }
  });
}

HopCall hop_call(const AttentionLayer& attention, const Batch& batch, ForwardContext& context) {
  return {.batch = batch,
          .layer = attention,
          .kernels = context.kernels(),
          .pool = context.pool(),
          .kv = context.kv().of(attention.layer),
          .q = context.q.as<float>(),
          .context = context.limits().context,
          .scratch = context.partials.as<float>(),
          .pointers = context.block_pointers.data()};
}

// context.normed, rounded in `rows` -> context.q, and, of a layer that stores them, context.k and context.v
void project_heads(const LayerSpec& layer, int64_t index, const LayerWeights& weights, const ActivationRows& rows,
                   ForwardContext& context) {
  const float* normed = context.normed.as<float>();
  float* k = context.k.as<float>();
  float* v = context.v.as<float>();
  const LinearId at{.layer = static_cast<int32_t>(index)};
  const Projection queries{at.of(LinearKind::q), weights.q, weights.q_bias,
                           layer.attention_gate ? context.mixer.as<float>() : context.q.as<float>()};
  const Projection keys{at.of(LinearKind::k), weights.k, weights.k_bias, k};
  if (!weights.k.present()) {
    project(context, normed, rows, {queries});
  } else if (!weights.v.present()) {  // the values are the keys
    project_alike(context, context.fused().qkv, normed, rows, {queries, keys});
    const int64_t kv_width = layer.kv_heads * layer.head_dim;
    for_rows(context, rows.tokens, kv_width,
             [&](int64_t t) { std::copy_n(k + t * kv_width, kv_width, v + t * kv_width); });
  } else {
    project_alike(context, context.fused().qkv, normed, rows,
                  {queries, keys, {at.of(LinearKind::v), weights.v, weights.v_bias, v}});
  }
  if (layer.attention_gate) take_queries(layer, rows.tokens, context);
}

// The row operations between the projections and attention, of one token each.
struct HeadRows {
  const ArchSpec& spec;
  const LayerSpec& layer;
  const LayerWeights& weights;
  ForwardContext& context;
  RopeRows rope = rope_of(spec, layer, context);
  int64_t q_width = layer.heads * layer.head_dim;
  int64_t kv_width = layer.kv_heads * layer.head_dim;
  bool stores = layer.kv_from < 0;
  float* q = context.q.as<float>();
  float* k = context.k.as<float>();
  float* v = context.v.as<float>();

  void norm(int64_t t) const {
    const KernelTable& kernels = context.kernels();
    norm_heads(spec, kernels, weights.q_norm, q + t * q_width, layer.heads, layer.head_dim);
    if (!stores) return;
    norm_heads(spec, kernels, weights.k_norm, k + t * kv_width, layer.kv_heads, layer.head_dim);
    norm_heads(spec, kernels, weights.v_norm, v + t * kv_width, layer.kv_heads, layer.head_dim);
  }
  void rotate(int64_t t) const {
    const KernelTable& kernels = context.kernels();
    rotate_heads(spec, kernels, rope, t, q + t * q_width, layer.heads, layer.head_dim);
    if (stores) rotate_heads(spec, kernels, rope, t, k + t * kv_width, layer.kv_heads, layer.head_dim);
  }
  void scale(int64_t t) const { context.kernels().scale(q + t * q_width, spec.attention_scale, q_width); }
};

// norm(), rotate() and scale() of all rows, then store(t) of each: in one pass, or several (FusedParts::heads).
template <typename Store>
void finish_heads(const HeadRows& rows, int64_t tokens, const Store& store) {
  ForwardContext& context = rows.context;
  const int64_t stored = rows.stores ? 2 * rows.kv_width : 0, values = rows.q_width + stored;
  if (context.fused().heads) {
    for_rows(context, tokens, values, [&](int64_t t) {
      rows.norm(t);
      rows.rotate(t);
      rows.scale(t);
      store(t);
    });
    return;
  }
  if (rows.spec.qk_norm != QkNorm::none) for_rows(context, tokens, values, [&](int64_t t) { rows.norm(t); });
  for_rows(context, tokens, values, [&](int64_t t) { rows.rotate(t); });
  for_rows(context, tokens, rows.q_width, [&](int64_t t) { rows.scale(t); });
  if (rows.stores) for_rows(context, tokens, stored, store);
}

}  // namespace

void attention_keys(const ArchSpec& spec, const LayerSpec& layer, int64_t index, const LayerWeights& weights,
                    const Batch& batch, const ActivationRows& rows, ForwardContext& context) {
  project_heads(layer, index, weights, rows, context);
  const HeadRows heads{spec, layer, weights, context};
  if (!heads.stores) return finish_heads(heads, batch.size(), [](int64_t) {});
  const int64_t stored_index = context.kv().layer_of(context.first_kv_layer, index);
  if (context.workers) {
    finish_heads(heads, batch.size(), [](int64_t) {});
    return context.workers->store(context.lane, stored_index, batch.size(), heads.k, heads.v);
  }
  CodecTiles* const tiles = context.tiles_of(stored_index);
  if (tiles) tiles->begin(batch, stored_index);
  const StoredKeys stored = stored_keys(batch, stored_index, context);
  const std::vector<BatchSpan>& spans = batch.spans_of(context.kv().group_of(stored_index));
  finish_heads(heads, batch.size(), [&](int64_t t) {
    const BatchSpan& span = span_of(spans, t);
    const float *k = heads.k + t * heads.kv_width, *v = heads.v + t * heads.kv_width;
    if (tiles) return tiles->store(span, t, k, v);
    store_token(stored, static_cast<size_t>(&span - spans.data()), t, k, v, layer.kv_heads, layer.head_dim);
  });
  if (tiles) tiles->encode(context.pool());
}

void attention_rows(const ArchSpec& spec, const LayerSpec& layer, int64_t index, const LayerWeights& weights,
                    const Batch& batch, const ActivationRows& rows, ForwardContext& context) {
  project_heads(layer, index, weights, rows, context);
  finish_heads({spec, layer, weights, context}, batch.size(), [](int64_t) {});
}

// The rotations of row `from` become those of row `to`.
static void move_rope_row(const ArchSpec& spec, int64_t from, int64_t to, ForwardContext& context) {
  float* rows = context.rope.as<float>();
  for (const RopeSpec& rope : spec.ropes) {
    const int64_t values = rope.rotated / 2 * 2;
    std::copy_n(rows + from * values, values, rows + to * values);
    rows += context.limits().tokens * values;
  }
}

const Batch& keep_outputs(const ArchSpec& spec, const Batch& batch, const LayerSpec* layer, ForwardContext& context) {
  if (static_cast<int64_t>(batch.output_rows.size()) == batch.size()) return batch;
  float* residual = context.residual.as<float>();
  float* pending = context.pending ? context.block_out.as<float>() : nullptr;
  const std::pair<float*, int64_t> further[] = {
      {context.layer_inputs.as<float>(), spec.layer_count() * spec.layer_input},
      {context.streams.as<float>(), spec.streams > 1 ? spec.streams * spec.width : 0},
      {context.beside.as<float>(), spec.laurel_rank > 0 ? spec.width : 0}};
  Batch& kept = context.outputs;
  kept.clear();
  kept.block_tables = batch.block_tables;
  kept.window_tables = batch.window_tables;
  if (!batch.visibility.empty()) kept.copy_visibility(batch);
  for (const int32_t t : batch.output_rows) {  // ascending and distinct: no row is written before it is read
    const int64_t i = kept.size();
    if (i != t) {
      std::copy_n(residual + t * spec.width, spec.width, residual + i * spec.width);
      for (size_t m = 0; layer && m < layer->mixers.size(); ++m) {
        const MixedRows mixed = layer->mixers[m].mixer->rows(*layer, context);
        std::copy_n(mixed.rows + t * mixed.width, mixed.width, mixed.rows + i * mixed.width);
        if (mixed.gates)
          std::copy_n(mixed.gates + t * mixed.gate_width, mixed.gate_width, mixed.gates + i * mixed.gate_width);
      }
      if (pending) std::copy_n(pending + t * spec.width, spec.width, pending + i * spec.width);
      if (layer && layer != &spec.layers.back()) move_rope_row(spec, t, i, context);  // for the layers behind it
      for (const auto& [rows, width] : further)
        if (layer && width > 0) std::copy_n(rows + t * width, width, rows + i * width);
    }
    const BatchSpan& span = span_of(batch.spans, t);
    const auto keep = [&](const BatchSpan& from, std::vector<BatchSpan>& to) {
      to.push_back({i, 1, from.first_slot + t - from.begin, from.table, from.table_size, from.state, from.chunk,
                    from.visibility, from.answer});
    };
    keep(span, kept.spans);
    for (size_t g = 0; g < batch.window_spans.size(); ++g)
      if (!batch.window_spans[g].empty())
        keep(batch.window_spans[g][static_cast<size_t>(&span - batch.spans.data())], kept.window_spans[g]);
    kept.tokens.push_back(batch.tokens[t]);
    kept.positions.push_back(batch.positions[t]);
    kept.output_rows.push_back(static_cast<int32_t>(i));
  }
  for (LinearWrapper* wrapper : context.hooks.wrappers()) wrapper->keep(batch.output_rows);
  for (LayerBlock* block : context.hooks.blocks()) block->keep(batch.output_rows);
  return kept;
}

void complete_keys(const ArchSpec& spec, const LayerSpec& layer, int64_t index, const Batch& batch,
                   ForwardContext& context) {
  const AttentionLayer attention = stored_layer(spec, layer, index, context);
  KvPool& kv = context.kv().of(attention.layer);
  const std::vector<ForwardObserver*>& observers = context.hooks.observers();
  for (ForwardObserver* observer : observers) observer->before_attention(index);
  const int64_t sets = pattern_layer_sets(pattern_of(attention, context.limits().context));
  for (int64_t set = 1; set <= sets; ++set)
    for (ForwardObserver* observer : observers)
      observer->before_attention(index + set * (std::ssize(kv.layout().layers) / (1 + sets)));
  const CodecTiles* tiles = context.tiles_of(attention.layer);
  summarize_keys(batch, attention, context.kernels(), context.pool(), kv, context.limits().context, tiles);
  const AttentionInput input{.layer = attention,
                             .batch = batch,
                             .kernels = context.kernels(),
                             .kv = kv,
                             .q = context.q.as<float>(),
                             .k = context.k.as<float>(),
                             .k_stride = attention.kv_heads * attention.head_dim,
                             .tiles = tiles};
  if (context.stager) context.stager->before_attention(input);
  for (const auto find : {find_lines, find_sums})
    find(batch, attention, context.kernels(), context.pool(), kv, input.q, context.limits().context,
         context.partials.as<float>(), context.block_pointers.data(), tiles);
  diffuse_values(hop_call(attention, batch, context), context.attended.as<float>());
  for_stored_layers(attention, input.q, [&](const AttentionLayer& own, const float* q) {
    const float* k = input.k + (own.layer - attention.layer) * attention.head_dim;
    for (ForwardObserver* observer : observers)
      observer->queries({own, batch, context.kernels(), kv, q, k, input.k_stride, tiles});
  });
  context.key_lifetimes.spans.clear();
  if (KeyGate* gate = context.hooks.gate()) gate->hide(input, context.normed.as<float>(), context.key_lifetimes);
}

void weigh_outputs(int64_t group, const Batch& batch, int64_t width, ForwardContext& context) {
  if (context.key_lifetimes.spans.empty()) return;
  float* rows = context.block_out.as<float>();
  for (const BatchSpan& span : batch.spans_of(group)) {
    const float* weights = context.key_lifetimes.spans[static_cast<size_t>(span.chunk)].weights;
    for (int64_t i = 0; weights && i < span.count; ++i)
      context.kernels().scale(rows + (span.begin + i) * width, weights[span.first_slot + i], width);
  }
}

namespace {

// context.q -> context.block_out. `gated`: the layer, if its attention has gates, which are in context.mixer.
void attend_and_project(const AttentionLayer& attention, int64_t index, const LayerWeights& weights, const Batch& batch,
                        const KeyLifetimes* lifetimes, const LayerSpec* gated, ForwardContext& context) {
  const int64_t q_width = attention.heads * attention.head_dim;
  if (context.workers)
    context.workers->attend(context.lane, batch, attention, context.q.as<float>(), context.attended.as<float>());
  else if (diffusing_pattern(pattern_of(attention, context.limits().context)))
    attend_last_hop(hop_call(attention, batch, context), context.attended.as<float>());
  else
    attend(batch, attention, context.kernels(), context.pool(), context.kv().of(attention.layer), context.q.as<float>(),
           context.attended.as<float>(), context.limits().context, context.partials.as<float>(),
           context.block_pointers.data(), context.tiles_of(attention.layer), context.prefixes(), lifetimes);
  for (ForwardObserver* observer : context.hooks.observers())
    observer->attended(attention, batch, context.attended.as<float>());
  if (gated) gate_values(*gated, batch.size(), context);
  project_attended(index, weights, batch.size(), q_width, context);
}

}  // namespace

void project_attended(int64_t layer, const LayerWeights& weights, int64_t tokens, int64_t q_width,
                      ForwardContext& context) {
  const float* attended = context.attended.as<float>();
  project(context, attended, encode_rows(context, weights.output, attended, tokens, q_width),
          {{{static_cast<int32_t>(layer), LinearKind::output},
            weights.output,
            weights.output_bias,
            context.block_out.as<float>()}});
}

void attention_block(const ArchSpec& spec, const LayerSpec& layer, int64_t index, const LayerWeights& weights,
                     const Batch& batch, ForwardContext& context) {
  AttentionLayer attention = stored_layer(spec, layer, index, context);
  if (!weights.sinks.empty()) attention.sinks = weights.sinks.data();
  attend_and_project(attention, index, weights, batch, &context.key_lifetimes, layer.attention_gate ? &layer : nullptr,
                     context);
  weigh_outputs(attention.group, batch, spec.width, context);
}

void cross_attention_block(const ArchSpec& spec, const LayerSpec& layer, int64_t stored, const LayerWeights& weights,
                           const Batch& batch, const ActivationRows& rows, ForwardContext& context) {
  const int64_t q_width = layer.heads * layer.head_dim;
  const KernelTable& kernels = context.kernels();
  float* q = context.q.as<float>();
  project(context, context.normed.as<float>(), rows,
          {{LinearId{.layer = 0}.of(LinearKind::q), weights.q, weights.q_bias, q}});
  const RopeRows rope = rope_of(spec, layer, context);
  for_rows(context, batch.size(), q_width, [&](int64_t t) {
    rotate_heads(spec, kernels, rope, t, q + t * q_width, layer.heads, layer.head_dim);
    kernels.scale(q + t * q_width, spec.attention_scale, q_width);
  });
  AttentionLayer attention = stored_layer(spec, layer, 0, context);
  attention.layer = stored;
  attention.group = context.kv().group_of(stored);
  attention.window = 0;
  attention.switches.pattern = nullptr;  // its queries are another model's
  attend_and_project(attention, 0, weights, batch, nullptr, nullptr, context);
}

}  // namespace millrace
