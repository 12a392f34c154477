// Attention in both directions, for encoders: every token of a text reads the keys and values of all its tokens, or of
// those at most half a window away. Nothing outlives the pass: keys and values are f32 rows of context.k and context.v,
// one text after the other without padding, and the KV pool has nothing of such a layer.
//
//   unit     (text, KV head, tile of queries): its partitions of 256 keys run one after the other and are joined
//   window   query i acts as slot i + half of a causal window of 2 half + 1 keys, which covers i - half .. i + half
//   ALiBi    the kernel writes scores; slope * |distance| is subtracted, then softmax and the sum of values
//
// Same bits: a unit reads the rows of its text alone, and numbers keys from the text's first token.
#include <algorithm>
#include <bit>
#include <cmath>

#include "attention/partial.h"
#include "formats/format.h"
#include "models/blocks/blocks.h"
#include "models/mixers/mixer.h"

namespace millrace {
namespace {

constexpr int64_t kUnitRows = 256;      // query rows (query x head) that share one reading of a partition
constexpr int64_t kBiasedQueries = 16;  // queries of a unit with ALiBi, whose scores of the whole text are stored
constexpr int64_t kScoreStep = 32;      // AttentionArgs::score_stride is a multiple of this

int64_t tile_of(const LayerSpec& layer, bool biased) {
  return biased ? kBiasedQueries : std::max<int64_t>(1, kUnitRows / (layer.heads / layer.kv_heads));
}

int64_t score_stride(int64_t keys) { return (keys + kScoreStep - 1) / kScoreStep * kScoreStep; }

// Floats of one worker: two partials, and with ALiBi the scores of one unit.
int64_t scratch_floats(const LayerSpec& layer, int64_t context, bool biased) {
  const int64_t rows = tile_of(layer, biased) * (layer.heads / layer.kv_heads);
  return 2 * partial_floats(rows, layer.head_dim) + (biased ? rows * score_stride(context) : 0);
}

// Slope of head h of n (Press et al., 2022, section 3, and the authors' rule for n that is no power of two).
float alibi_slope(float alibi, int64_t heads, int64_t head) {
  const auto floor = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  const double step = static_cast<double>(alibi) / static_cast<double>(floor);
  const double power =
      head < floor ? step * static_cast<double>(head + 1) : step / 2 * static_cast<double>(2 * (head - floor) + 1);
  return static_cast<float>(std::exp2(-power));
}

// Queries of one span of the batch over the keys of its text.
struct TextUnit {
  BatchSpan text;     // of the batch whose keys are in context.k
  int64_t query = 0;  // row of the first query in context.q
  int64_t at = 0;     // place of the first query in the text
  int64_t queries = 0;
  int64_t kv_head = 0;
};

class TextAttention {
 public:
  explicit TextAttention(const MixerCall& call)
      : call_(call),
        layer_(call.layer),
        context_(call.context),
        kernel_(*call.context.kernels().find_attention(find_format("f32"))),
        group_(call.layer.heads / call.layer.kv_heads),
        biased_(call.spec.alibi > 0),
        tile_(tile_of(call.layer, biased_)) {}

  // context.q -> context.attended
  void run() {
    std::vector<int64_t>& first = context_.text_units;
    first.assign(1, 0);
    for (const BatchSpan& span : call_.batch.spans)
      first.push_back(first.back() + layer_.kv_heads * ((span.count + tile_ - 1) / tile_));
    context_.pool().parallel_for(first.back(), [&](int64_t index, int worker) {
      const auto next = std::ranges::upper_bound(first, index);
      const auto span = static_cast<size_t>(next - first.begin()) - 1;
      run_unit(unit_of(call_.batch.spans[span], index - first[span]), scratch_of(worker));
    });
  }

 private:
  float* scratch_of(int worker) const {
    return context_.mixer.as<float>() + worker * scratch_floats(layer_, context_.limits().tokens, biased_);
  }

  TextUnit unit_of(const BatchSpan& span, int64_t index) const {
    const int64_t tiles = (span.count + tile_ - 1) / tile_, first = index % tiles * tile_;
    const BatchSpan& text = context_.text_spans[static_cast<size_t>(span.chunk)];
    return {text, span.begin + first, span.first_slot - text.first_slot + first, std::min(tile_, span.count - first),
            index / tiles};
  }

  AttentionArgs args_of(const TextUnit& unit, const uint8_t* const* keys, const uint8_t* const* values) const {
    const int64_t width = layer_.heads * layer_.head_dim;
    const int64_t half = layer_.window > 0 ? layer_.window / 2 : unit.text.count;
    AttentionArgs args;
    args.q = context_.q.as<float>() + unit.query * width + unit.kv_head * group_ * layer_.head_dim;
    args.q_stride = width;
    args.queries = unit.queries;
    args.group = group_;
    args.head_dim = layer_.head_dim;
    args.first_query = unit.at + half;
    args.window = layer_.window > 0 ? 2 * half + 1 : 0;
    args.softcap = call_.spec.attention_softcap;
    args.k_blocks = keys;
    args.v_blocks = values;
    args.block_tokens = unit.text.count;
    args.row_bytes = layer_.kv_heads * layer_.head_dim * static_cast<int64_t>(sizeof(float));
    return args;
  }

  const float* rows_of(const TextUnit& unit, const AlignedBuffer& rows) const {
    return rows.as<float>() + (unit.text.begin * layer_.kv_heads + unit.kv_head) * layer_.head_dim;
  }

  float* out_of(const TextUnit& unit, int64_t query) const {
    return context_.attended.as<float>() +
           ((unit.query + query) * layer_.heads + unit.kv_head * group_) * layer_.head_dim;
  }

  // Calls run(args) for each partition that some query of the unit sees, in order.
  template <typename Run>
  void for_partitions(const TextUnit& unit, const Run& run_partition) const {
    const auto* keys = reinterpret_cast<const uint8_t*>(rows_of(unit, context_.k));
    const auto* values = reinterpret_cast<const uint8_t*>(rows_of(unit, context_.v));
    AttentionArgs args = args_of(unit, &keys, &values);
    const int64_t begin = args.window > 0 ? std::max<int64_t>(0, args.first_query + 1 - args.window) : 0;
    const int64_t end = std::min(unit.text.count, args.first_query + unit.queries);
    for (int64_t part = begin / kAttentionPartition; part * kAttentionPartition < end; ++part) {
      args.key_begin = part * kAttentionPartition;
      args.key_end = std::min(args.key_begin + kAttentionPartition, end);
      args.key_ahead = args.key_end;
      run_partition(args);
    }
  }

  void run_unit(const TextUnit& unit, float* scratch) const {
    if (biased_) return run_biased(unit, scratch);
    const int64_t rows = unit.queries * group_, dim = layer_.head_dim;
    const Partial total = partial_at(scratch, rows), partial = partial_at(scratch + partial_floats(rows, dim), rows);
    bool first = true;
    for_partitions(unit, [&](AttentionArgs& args) {
      set_partial(first ? total : partial, args);
      kernel_.run(args);
      if (!first) join_partial(context_.kernels(), rows, dim, partial, total);
      first = false;
    });
    for (int64_t i = 0; i < unit.queries; ++i)
      context_.kernels().attention_merge(1, group_, group_, dim, total.max + i * group_, total.sum + i * group_,
                                         total.acc + i * group_ * dim, nullptr, out_of(unit, i));
  }

  void run_biased(const TextUnit& unit, float* scratch) const {
    const int64_t keys = unit.text.count, stride = score_stride(keys);
    for_partitions(unit, [&](AttentionArgs& args) {
      args.scores = scratch + args.key_begin;
      args.score_stride = stride;
      kernel_.run(args);
    });
    for (int64_t row = 0; row < unit.queries * group_; ++row) {
      const int64_t head = unit.kv_head * group_ + row % group_, at = unit.at + row / group_;
      float* scores = scratch + row * stride;
      const float slope = alibi_slope(call_.spec.alibi, layer_.heads, head);
      for (int64_t key = 0; key < keys; ++key) scores[key] -= slope * static_cast<float>(std::abs(at - key));
      context_.kernels().softmax(scores, keys);
      sum_values(unit, scores, out_of(unit, row / group_) + row % group_ * layer_.head_dim);
    }
  }

  void sum_values(const TextUnit& unit, const float* weights, float* out) const {
    const float* value = rows_of(unit, context_.v);
    std::fill_n(out, layer_.head_dim, 0.0f);
    for (int64_t key = 0; key < unit.text.count; ++key, value += layer_.kv_heads * layer_.head_dim)
      context_.kernels().add_scaled(value, weights[key], out, layer_.head_dim);
  }

  const MixerCall& call_;
  const LayerSpec& layer_;
  ForwardContext& context_;
  const AttentionKernel& kernel_;
  const int64_t group_;
  const bool biased_;
  const int64_t tile_;
};

std::string bidirectional_problem(const ArchSpec& spec, const LayerSpec& layer) {
  if (spec.alibi > 0 && layer.window > 0) return "ALiBi in a layer with a window";
  if (layer.attention_gate) return "gates of attention in a bidirectional layer";
  return kAttentionMixer.problem(spec, layer);
}

KvLayer no_state(const LayerSpec&) { return {.kv_heads = 0, .head_dim = 0}; }

// ForwardLimits and LayerSpec do not say whether the model has ALiBi, so the larger scratch is declared.
void declare_bidirectional(const LayerSpec& layer, const ForwardLimits& limits, int threads, ForwardSizes& sizes) {
  kAttentionMixer.declare(layer, limits, threads, sizes);
  const int64_t floats =
      std::max(scratch_floats(layer, limits.tokens, false), scratch_floats(layer, limits.tokens, true));
  ForwardSizes::grow(sizes.mixer, static_cast<int64_t>(sizeof(float)) * threads * floats);
}

Result<void> load_bidirectional(WeightLoader& loader, const std::string& prefix, const ArchSpec& spec,
                                const LayerSpec& layer, LayerWeights& weights) {
  return kAttentionMixer.load(loader, prefix, spec, layer, weights);
}

const Weight& query_matrix(const LayerWeights& weights) { return weights.q; }

void begin_bidirectional(const MixerCall& call, const ActivationRows& x) {
  attention_rows(call.spec, call.layer, call.index, call.weights, call.batch, x, call.context);
  call.context.text_spans = call.batch.spans;
}

MixedRows text_queries(const LayerSpec& layer, ForwardContext& context) {
  return {context.q.as<float>(), layer.heads * layer.head_dim};
}

void finish_bidirectional(const MixerCall& call) {
  TextAttention(call).run();
  project_attended(call.index, call.weights, call.batch.size(), call.layer.heads * call.layer.head_dim, call.context);
}

}  // namespace

const Mixer kBidirectionalMixer = {
    .name = "bidirectional",
    .summary =
        "Every token of a text reads the keys and values of the whole text, or of a window around it; nothing "
        "is stored",
    .paper = "Devlin et al., 2019, BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
    .test = "src/evaluate/encoders_test.cc",
    .state_kind = StateKind::none,
    .problem = bidirectional_problem,
    .state = no_state,
    .declare = declare_bidirectional,
    .load = load_bidirectional,
    .first = query_matrix,
    .begin = begin_bidirectional,
    .rows = text_queries,
    .finish = finish_bidirectional,
};

}  // namespace millrace
