// Mixture of experts (Shazeer et al., 2017; Jiang et al., 2024, "Mixtral of Experts"): tokens' rows are gathered by
// expert, so that each expert's matrices are read once per batch, and summed per token in the token's own rank order,
// so that results do not depend on the rest of the batch.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/activation.h"
#include "models/blocks/blocks.h"
#include "models/router.h"
#include "models/weight_source.h"

namespace millrace {
namespace {

const std::vector<float> kNoBias;
constexpr int32_t kPadding = -1;  // in context.expert_rows, and for dropped pairs

const float* bias_of(const std::vector<float>& bias) { return bias.empty() ? nullptr : bias.data(); }

// Counting sort of (token, rank) pairs by expert into context.expert_rows.
void group_by_expert(const MoeSpec& moe, int64_t pairs, ForwardContext& context) {
  auto& begin = context.expert_begin;
  std::ranges::fill(begin, 0);
  for (int64_t i = 0; i < pairs; ++i) ++begin[context.chosen[i] + 1];
  for (int64_t e = 0; e < moe.experts; ++e) begin[e + 1] += begin[e];
  for (int64_t i = 0; i < pairs; ++i) context.expert_rows[begin[context.chosen[i]]++] = static_cast<int32_t>(i);
  for (int64_t e = moe.experts; e > 0; --e) begin[e] = begin[e - 1];
  begin[0] = 0;
}

// The same in `rows` places for each expert: pairs beyond them are dropped, and places that are left are kPadding.
void group_padded(const MoeSpec& moe, int64_t pairs, int64_t rows, ForwardContext& context) {
  auto& begin = context.expert_begin;
  for (int64_t e = 0; e <= moe.experts; ++e) begin[static_cast<size_t>(e)] = e * rows;
  std::fill_n(context.expert_rows.begin(), moe.experts * rows, kPadding);
  for (int64_t i = 0; i < pairs; ++i) {
    const auto place = context.expert_rows.begin() + context.chosen[i] * rows;
    const auto free = std::find(place, place + rows, kPadding);
    if (free != place + rows) *free = static_cast<int32_t>(i);
  }
}

// The token of a row; padding computes the first one's.
int64_t token_of(const MoeSpec& moe, int32_t pair) { return pair == kPadding ? 0 : pair / moe.used; }

// The products of one layer's experts as one job, so that an expert with only a token or two stalls no thread: gate and
// up of every expert that has rows, or their down. Rows of one expert are contiguous from expert_begin.
struct ExpertJobs {
  int32_t layer;
  const std::vector<MlpWeights>& experts;
  const MoeSpec& moe;
  int64_t width;
  bool gated;
  ForwardContext& context;

  int64_t first_expert = 0, end_expert = 0;  // those that run
  bool mixed = false;                        // the experts' formats round their inputs in different ways

  template <typename AddParts>
  void run(const AddParts& add) const {
    size_t count = 0;
    for (int64_t e = first_expert; e < end_expert; ++e) {
      const int64_t begin = context.expert_begin[static_cast<size_t>(e)];
      const int64_t rows = context.expert_begin[static_cast<size_t>(e + 1)] - begin;
      if (rows > 0) count = add(e, begin, rows, count);
    }
    const std::span parts(context.expert_parts.data(), count);
    const std::span sources(context.expert_sources.data(), count);
    if (context.fused().experts) return project(context, parts, sources);
    for (size_t i = 0; i < count; ++i) project(context, parts.subspan(i, 1), sources.subspan(i, 1));
  }

  int64_t first_row() const { return context.expert_begin[static_cast<size_t>(first_expert)]; }
  int64_t rows() const { return context.expert_begin[static_cast<size_t>(end_expert)] - first_row(); }

  // Returns where the rounded rows [rows, cols] of an expert begin in a buffer for all experts, if mixed: in bytes,
  // with room for the widest rounding of all rows before them.
  int64_t own_at(int64_t expert, int64_t cols) const {
    int64_t widest = 0;
    for (Activation kind : kActivations) widest = std::max(widest, activation_row_bytes(kind, cols));
    return context.expert_begin[static_cast<size_t>(expert)] * widest;
  }

  ActivationRows own_rows(const Weight& weight, int64_t expert, int64_t rows, uint8_t* scratch) const {
    return activation_rows(weight.format->activation, rows, weight.cols, scratch + own_at(expert, weight.cols));
  }

  // The expert whose rows include `row`.
  int64_t expert_of(int64_t row) const {
    const auto begin = context.expert_begin.begin(), end = begin + moe.experts + 1;
    return std::upper_bound(begin, end, row) - begin - 1;
  }

  // Rounds x as one row of own_rows().
  void encode_own(const Weight& weight, int64_t expert, int64_t row, const float* x, uint8_t* scratch) const {
    uint8_t* const data = scratch + own_at(expert, weight.cols);
    encode_row(context.kernels(), activation_rows(weight.format->activation, 1, weight.cols, data),
               row - context.expert_begin[static_cast<size_t>(expert)], x, data);
  }

  LinearId id(LinearKind kind, int64_t expert) const { return {layer, kind, static_cast<int32_t>(expert)}; }

  // `in`: all experts' rows, and `x` before rounding, or null; if `shared`, the one row that all of them read.
  void gate_up(const ActivationRows& in, const float* x, bool shared) const {
    run([&](int64_t e, int64_t begin, int64_t rows, size_t at) {
      const MlpWeights& expert = experts[static_cast<size_t>(e)];
      const int64_t first = shared ? 0 : begin;
      ActivationRows mine = in;
      mine.tokens = rows;
      mine.data += first * in.stride;
      if (mixed) mine = own_rows(expert.up, e, rows, context.expert_in.data());
      const float* before = x ? x + first * width : nullptr;
      if (gated) {
        context.expert_sources[at] = {id(LinearKind::gate, e), before};
        context.expert_parts[at++] = {.weight = &expert.gate,
                                      .x = mine,
                                      .y = context.gate.as<float>() + begin * moe.hidden,
                                      .y_stride = moe.hidden,
                                      .bias = bias_of(expert.gate_bias)};
      }
      context.expert_sources[at] = {id(LinearKind::up, e), before};
      context.expert_parts[at++] = {.weight = &expert.up,
                                    .x = mine,
                                    .y = context.up.as<float>() + begin * moe.hidden,
                                    .y_stride = moe.hidden,
                                    .bias = bias_of(expert.up_bias)};
      return at;
    });
  }

  // The experts' activated rows, which activate() writes over those of the gate, or of up if there is no gate.
  float* inner() const { return (gated ? context.gate : context.up).as<float>(); }

  void down(const ActivationRows& in) const {
    run([&](int64_t e, int64_t begin, int64_t rows, size_t at) {
      ActivationRows mine = in;
      mine.tokens = rows;
      mine.data += begin * in.stride;
      context.expert_sources[at] = {id(LinearKind::down, e), inner() + begin * moe.hidden};
      const MlpWeights& expert = experts[static_cast<size_t>(e)];
      if (mixed) mine = own_rows(expert.down, e, rows, context.encoded_hidden.data());
      context.expert_parts[at] = {.weight = &expert.down,
                                  .x = mine,
                                  .y = context.expert_out.as<float>() + begin * width,
                                  .y_stride = width,
                                  .bias = bias_of(expert.down_bias)};
      return at + 1;
    });
  }
};

bool padded(const ForwardContext& context) { return context.limits().switches.expert_capacity > 0; }

bool hooks_read_experts(const ExpertJobs& jobs) {
  for (int64_t e = 0; !jobs.context.hooks.empty() && e < jobs.moe.experts; ++e)
    for (LinearKind kind : {LinearKind::gate, LinearKind::up})
      if (jobs.context.hooks.reads(jobs.id(kind, e))) return true;
  return false;
}

// Returns true if experts of the layer need their inputs rounded in different ways: load_moe() refuses files with such
// experts, and cold ones have another format than the file's.
bool mixes_roundings(const ForwardContext& context, const std::vector<MlpWeights>& experts) {
  if (!context.source || context.source->policy().lossy.empty()) return false;
  return std::ranges::any_of(experts, [&](const MlpWeights& one) {
    return one.up.format->activation != experts.front().up.format->activation ||
           one.down.format->activation != experts.front().down.format->activation;
  });
}

// The rows that the experts read, before rounding, gathered as the rounded ones are; null if neither hooks nor weight
// parts read them. Only rows of the experts that run are written.
const float* expert_inputs(const ExpertJobs& jobs, const ActivationRows& x) {
  ForwardContext& context = jobs.context;
  const MoeSpec& moe = jobs.moe;
  const float* normed = context.normed.as<float>();
  if (x.tokens == 1 && !padded(context)) return normed;
  if (!context.part_sizes().any && !hooks_read_experts(jobs)) return nullptr;
  float* rows = context.expert_out.as<float>();  // unused until the experts' last product
  const int64_t first = jobs.first_row();
  for_rows(context, jobs.rows(), x.cols, [&](int64_t i) {
    const int64_t row = first + i;
    std::copy_n(normed + token_of(moe, context.expert_rows[row]) * x.cols, x.cols, rows + row * x.cols);
  });
  return rows;
}

// Runs experts [from, to) on the rows of `x`; each (token, rank) pair has a separate row of context.expert_out.
void run_experts(const ArchSpec& spec, const MoeSpec& moe, LinearId at, const LayerWeights& weights,
                 const ActivationRows& x, int64_t from, int64_t to, ForwardContext& context) {
  const KernelTable& kernels = context.kernels();
  const bool mixed = mixes_roundings(context, weights.experts);
  const ExpertJobs jobs{at.layer, weights.experts, moe, spec.width, spec.gated, context, from, to, mixed};
  const int64_t pairs = context.expert_begin.back(), first = jobs.first_row();
  const bool one = x.tokens == 1 && !padded(context);
  ActivationRows in = x;
  if (mixed) {
    const float* const normed = context.normed.as<float>();
    for_rows(context, jobs.rows(), spec.width, [&](int64_t i) {
      const int64_t row = first + i, expert = jobs.expert_of(row);
      jobs.encode_own(weights.experts[static_cast<size_t>(expert)].up, expert, row,
                      normed + token_of(moe, context.expert_rows[row]) * spec.width, context.expert_in.data());
    });
  } else if (!one) {
    in.data = context.expert_in.data();
    for_rows(context, jobs.rows(), x.stride / 4, [&](int64_t i) {
      const int64_t row = first + i;
      std::memcpy(context.expert_in.data() + row * x.stride,
                  x.data + token_of(moe, context.expert_rows[row]) * x.stride, static_cast<size_t>(x.stride));
    });
  }
  jobs.gate_up(in, expert_inputs(jobs, x), one);
  // One rounding for all, if not mixed.
  const ActivationRows inner =
      activation_rows(weights.experts[0].down.format->activation, pairs, moe.hidden, context.encoded_hidden.data());
  float* gate = context.gate.as<float>() + first * moe.hidden;
  float* up = context.up.as<float>() + first * moe.hidden;
  activate_rows(
      context, jobs.rows(), moe.hidden,
      [&](int64_t i) { activate(spec, kernels, gate + i * moe.hidden, up + i * moe.hidden, moe.hidden); },
      [&](int64_t i) {
        const int64_t row = first + i;
        const float* const hidden = jobs.inner() + row * moe.hidden;
        uint8_t* const scratch = context.encoded_hidden.data();
        if (!mixed) return encode_row(kernels, inner, row, hidden, scratch);
        const int64_t expert = jobs.expert_of(row);
        jobs.encode_own(weights.experts[static_cast<size_t>(expert)].down, expert, row, hidden, scratch);
      });
  jobs.down(inner);
}

// Runs the experts that tokens chose, as many at a time as the weight source has in memory. False: their weights cannot
// be read, and the pass has failed.
bool run_leased_experts(const ArchSpec& spec, const MoeSpec& moe, LinearId at, const LayerWeights& weights,
                        const ActivationRows& x, ForwardContext& context) {
  if (!context.source) {
    run_experts(spec, moe, at, weights, x, 0, moe.experts, context);
    return true;
  }
  auto& ids = context.expert_ids;
  ids.clear();
  for (int32_t e = 0; e < moe.experts; ++e)
    if (context.expert_begin[static_cast<size_t>(e + 1)] > context.expert_begin[static_cast<size_t>(e)])
      ids.push_back(e);
  for (size_t done = 0; done < ids.size();) {
    auto leased = context.source->acquire_experts(at.layer, std::span(ids).subspan(done), context.expert_guesses,
                                                  context.expert_leases);
    if (!leased.ok()) {
      context.fail(leased.error());
      return false;
    }
    const size_t end = done + static_cast<size_t>(*leased);
    run_experts(spec, moe, at, weights, x, ids[done], ids[end - 1] + 1, context);
    context.expert_leases.clear();
    done = end;
  }
  return true;
}

}  // namespace

void moe_block(const ArchSpec& spec, const MoeSpec& moe, LinearId at, const LayerWeights& weights,
               const ActivationRows& rows, ForwardContext& context) {
  project(context, context.normed.as<float>(), rows,
          {{at.of(LinearKind::router), weights.router, weights.router_bias, context.router.as<float>()}});
  guess_experts(spec, at.layer, rows, context);
  experts_block(spec, moe, at, weights, rows.tokens, context);
}

void experts_block(const ArchSpec& spec, const MoeSpec& moe, LinearId at, const LayerWeights& weights, int64_t tokens,
                   ForwardContext& context) {
  const KernelTable& kernels = context.kernels();
  const float* normed = context.normed.as<float>();
  float* logits = context.router.as<float>();
  const ActivationRows x =
      activation_rows(weights.experts[0].up.format->activation, tokens, spec.width, context.encoded.data());
  for_rows(context, tokens, spec.width + moe.experts * moe.used, [&](int64_t t) {
    moe.router->choose(moe, kernels, logits + t * moe.experts, &context.chosen[t * moe.used],
                       &context.chosen_weight[t * moe.used]);
    for (int64_t i = t * moe.used; !weights.expert_scales.empty() && i < (t + 1) * moe.used; ++i)
      context.chosen_weight[i] *= weights.expert_scales[static_cast<size_t>(context.chosen[i])];
    encode_row(kernels, x, t, normed + t * spec.width, context.encoded.data());
  });
  const int64_t pairs = tokens * moe.used;
  const double capacity = context.limits().switches.expert_capacity;
  if (capacity > 0)
    group_padded(moe, pairs, padded_rows(capacity, pairs, moe.experts), context);
  else
    group_by_expert(moe, pairs, context);
  if (!run_leased_experts(spec, moe, at, weights, x, context)) return;

  float* out = context.block_out.as<float>();
  const bool shared = weights.shared.down.present();
  if (shared) {
    const Weight& up = weights.shared.up;
    mlp_block(spec, {.layer = at.layer, .expert = LinearId::kShared}, weights.shared, moe.shared_hidden,
              encode_activations(kernels, context.pool(), up.format->activation, normed, spec.width, tokens, spec.width,
                                 context.encoded.data()),
              context);
  }
  if (weights.shared_gate.present()) {
    ActivationRows gated = encode_activations(kernels, context.pool(), weights.shared_gate.format->activation, normed,
                                              spec.width, tokens, spec.width, context.encoded.data());
    project(context, normed, gated, {{at.of(LinearKind::shared_gate), weights.shared_gate, kNoBias, logits}});
  }
  // The row of each (token, rank), then the sum in rank order.
  auto& place = context.chosen;
  const int64_t computed = context.expert_begin.back();
  const std::vector<float>& bias = weights.shared.down_bias;
  std::fill_n(place.begin(), pairs, kPadding);
  for (int64_t i = 0; i < computed; ++i)
    if (context.expert_rows[i] != kPadding) place[context.expert_rows[i]] = static_cast<int32_t>(i);
  for_rows(context, tokens, spec.width * moe.used, [&](int64_t t) {
    float* row = out + t * spec.width;
    if (!shared && bias.empty()) std::fill_n(row, spec.width, 0.0f);
    if (!shared) std::ranges::copy(bias, row);
    if (weights.shared_gate.present()) kernels.scale(row, 1.0f / (1.0f + std::exp(-logits[t])), spec.width);
    for (int64_t rank = 0; rank < moe.used; ++rank) {
      const int64_t pair = t * moe.used + rank;
      if (place[pair] == kPadding) continue;
      kernels.add_scaled(context.expert_out.as<float>() + place[pair] * spec.width, context.chosen_weight[pair], row,
                         spec.width);
    }
  });
}

}  // namespace millrace
