// The parts of a layer. Each processes the whole batch and reads architecture differences from ArchSpec.
//
// All row operations between two products run in one pass, so that a row stays in a cache and threads synchronize once:
//
//   add the last block's output, norm, round -> Q K V -> QK-norm, rope, store -> attend -> round -> output
//   add, norm, round -> gate up -> activate, round -> down
#pragma once

#include <initializer_list>
#include <span>

#include "flow/batch.h"
#include "models/blocks/changed_products.h"
#include "models/forward_context.h"
#include "models/mixers/mixer.h"
#include "models/model.h"

namespace millrace {

// Calls body(t) for every row, on several threads if `values`, the number of values per row, makes that worthwhile.
template <typename Body>
void for_rows(ForwardContext& context, int64_t rows, int64_t values, const Body& body) {
  constexpr int64_t kWorthThreads = 1 << 12;  // about 2 us of work: starting a job takes a fraction of one
  if (rows * values < kWorthThreads) {
    for (int64_t t = 0; t < rows; ++t) body(t);
  } else {
    context.pool().parallel_for(rows, [&](int64_t t, int) { body(t); });
  }
}

// Normalizes one row, or copies it if there is no norm (y may be x).
void norm_row(const ArchSpec& spec, const NormWeights& weights, const KernelTable& kernels, const float* x, float* y);

// Rows for a product with `weight`; without data, for encode_row() and project(), if it changes its inputs, and so
// rounds them itself.
inline ActivationRows rows_for(const Weight& weight, int64_t tokens, int64_t cols, uint8_t* scratch) {
  return activation_rows(weight.format->activation, tokens, cols, changes_product(weight) ? nullptr : scratch);
}

// Rounds row t of `rows`, which are stored at `scratch`.
inline void encode_row(const KernelTable& kernels, const ActivationRows& rows, int64_t t, const float* x,
                       uint8_t* scratch) {
  if (rows.data) kernels.encode_activation(rows.kind, x, rows.cols, scratch + t * rows.stride);
}

// Rounds x [tokens, cols] into context.encoded for a product with `weight`, unless the weight changes its inputs.
ActivationRows encode_rows(ForwardContext& context, const Weight& weight, const float* x, int64_t tokens, int64_t cols);

// One of several matrices that read the same rows.
struct Projection {
  LinearId id;
  const Weight& weight;
  const std::vector<float>& bias;  // empty: none
  float* y;                        // [tokens, weight.rows]
};

// Multiplies `x` [tokens, cols], rounded in `rows` for the first matrix (see rows_for()), as one job if all matrices
// use the same rounding. Otherwise the remaining matrices round again into context.encoded.
void project(ForwardContext& context, const float* x, ActivationRows rows, std::initializer_list<Projection> matrices);
// Multiplies as one job if `joint`; otherwise each matrix rounds the rows itself in a separate job.
void project_alike(ForwardContext& context, bool joint, const float* x, const ActivationRows& rows,
                   std::initializer_list<Projection> matrices);
// Runs any products as one job. All of a model's matrices are multiplied here: this is where hooks see them.
void project(ForwardContext& context, std::span<LinearPart> parts, std::span<const LinearSource> sources);

// Fills row t of context.rope with cos and sin.
void fill_rope_row(const ArchSpec& spec, const std::vector<std::vector<double>>& frequencies,
                   const std::vector<float>& scales, int32_t position, int64_t t, ForwardContext& context);

// The two halves of the attention mixer (mixers/attention.cc). After the first, which stores all tokens' keys and
// values, the last layer continues only with the tokens whose logits are needed (keep_outputs).
// context.normed, rounded in `rows` -> context.q
void attention_keys(const ArchSpec& spec, const LayerSpec& layer, int64_t index, const LayerWeights& weights,
                    const Batch& batch, const ActivationRows& rows, ForwardContext& context);
// Variant that stores nothing: keys and values of the batch's tokens are in context.k and context.v.
void attention_rows(const ArchSpec& spec, const LayerSpec& layer, int64_t index, const LayerWeights& weights,
                    const Batch& batch, const ActivationRows& rows, ForwardContext& context);
// Called after attention_keys(), in this order: tells the observers that this layer's keys are about to be read;
// computes the summaries of keys that a dynamic attention pattern reads; shows the observers the queries; lets gates
// hide keys.
void complete_keys(const ArchSpec& spec, const LayerSpec& layer, int64_t index, const Batch& batch,
                   ForwardContext& context);
// After the layer's product: multiplies the rows of context.block_out by the weights that its gates give their tokens.
void weigh_outputs(int64_t group, const Batch& batch, int64_t width, ForwardContext& context);
// context.q -> context.block_out
void attention_block(const ArchSpec& spec, const LayerSpec& layer, int64_t index, const LayerWeights& weights,
                     const Batch& batch, ForwardContext& context);
// Multiplies context.attended, rows of `q_width` values, by the output matrix of attention -> context.block_out
void project_attended(int64_t layer, const LayerWeights& weights, int64_t tokens, int64_t q_width,
                      ForwardContext& context);
// context.normed, rounded in `rows` -> context.block_out: queries over the keys and values of layer `stored` of the
// pool, which another model has stored.
void cross_attention_block(const ArchSpec& spec, const LayerSpec& layer, int64_t stored, const LayerWeights& weights,
                           const Batch& batch, const ActivationRows& rows, ForwardContext& context);
// Moves the residual and pending rows of batch.output_rows to the front, and the rows of the mixers of `layer`, which
// have begun (null: none has). Returns the resulting batch, which is `batch` itself if it has no other rows.
const Batch& keep_outputs(const ArchSpec& spec, const Batch& batch, const LayerSpec* layer, ForwardContext& context);

// context.normed, rounded in `rows` -> context.block_out. `at`: the layer and the MLP.
// `gate_cut`: LayerSpec::gate_cut
void mlp_block(const ArchSpec& spec, LinearId at, const MlpWeights& weights, int64_t hidden, const ActivationRows& rows,
               ForwardContext& context, float gate_cut = 0.0f);
void moe_block(const ArchSpec& spec, const MoeSpec& moe, LinearId at, const LayerWeights& weights,
               const ActivationRows& rows, ForwardContext& context);
// Called behind the router, whose input is rounded in `rows`: fills context.expert_guesses, if the model's weight
// source wants guesses.
void guess_experts(const ArchSpec& spec, int64_t layer, const ActivationRows& rows, ForwardContext& context);
// The part of moe_block() behind the router, whose logits are in context.router: context.normed -> context.block_out
void experts_block(const ArchSpec& spec, const MoeSpec& moe, LinearId at, const LayerWeights& weights, int64_t tokens,
                   ForwardContext& context);
// A dense MLP and experts on the same residual stream (MoeSpec::beside_mlp): context.residual, and context.normed
// rounded in `rows` for the MLP -> context.block_out
void mlp_and_experts_block(const ArchSpec& spec, const LayerSpec& layer, LinearId at, const LayerWeights& weights,
                           const ActivationRows& rows, ForwardContext& context);

// The layers' own inputs of the batch's tokens: context.residual, which has their embeddings -> context.layer_inputs
void make_layer_inputs(const ArchSpec& spec, const LayerInputWeights& weights, const Batch& batch,
                       ForwardContext& context);
// The gate of a layer's own input: the complete context.residual -> context.block_out
void layer_input_block(const ArchSpec& spec, int64_t layer, const LayerWeights& weights, int64_t tokens,
                       ForwardContext& context);

// Several residual streams (alt_up.cc). All functions are of the batch's first `tokens` rows.
// context.residual, which has the embeddings -> context.streams
void make_streams(const ArchSpec& spec, const std::vector<Weight>& into, int64_t tokens, ForwardContext& context);
// Before a layer: context.streams -> their predictions, of which the active one is context.residual, too
void predict_streams(const ArchSpec& spec, const AltUpWeights& weights, int64_t tokens, ForwardContext& context);
// After a layer's MLP: corrects context.streams by the change of context.residual. Then sets context.residual to the
// corrected active stream, scaled; layer_input_block() reads it.
void correct_streams(const ArchSpec& spec, const AltUpWeights& weights, int64_t tokens, ForwardContext& context);
// Adds norm(context.block_out) to all streams but the first.
void add_to_streams(const ArchSpec& spec, const NormWeights& norm, int64_t tokens, ForwardContext& context);
// Behind the last layer: context.streams -> context.residual
void merge_streams(const ArchSpec& spec, const std::vector<Weight>& from, int64_t tokens, ForwardContext& context);
// LAuReL: context.normed -> the rows of add_laurel(). Overwrites context.block_out.
void laurel_block(const ArchSpec& spec, int64_t layer, const LayerWeights& weights, int64_t tokens,
                  ForwardContext& context);
// Adds the rows of laurel_block() to context.residual.
void add_laurel(const ArchSpec& spec, int64_t tokens, ForwardContext& context);

// activate(t) and round(t) of every row, `values` each: in one pass over the rows, or two (FusedParts::activation).
template <typename Activate, typename Round>
void activate_rows(ForwardContext& context, int64_t rows, int64_t values, const Activate& activate_row,
                   const Round& round_row) {
  if (!context.fused().activation) {
    for_rows(context, rows, values, activate_row);
    for_rows(context, rows, values, round_row);
    return;
  }
  for_rows(context, rows, 2 * values, [&](int64_t t) {
    activate_row(t);
    round_row(t);
  });
}

// act(gate) * up, or act(up) in place, over n values: `up` holds the result when there is no gate, `gate` otherwise.
void activate(const ArchSpec& spec, const KernelTable& kernels, float* gate, float* up, int64_t n);

}  // namespace millrace
