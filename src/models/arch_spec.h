// ArchSpec: an architecture as data. A single forward pass (models/model.cc, models/blocks/) interprets it; each family
// has a file in models/arch/ that fills it from a GGUF file's metadata or a Hugging Face config.json.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tensor/weight_parts.h"

namespace millrace {

struct Mixer;  // models/mixers/mixer.h
extern const Mixer kAttentionMixer;
extern const Mixer kBidirectionalMixer;

enum class NormKind : uint8_t { rms, layer };
enum class QkNorm : uint8_t { none, head, full };  // none; RMS over each head (Qwen3, Gemma3); over all heads (OLMo2)
enum class RopeStyle : uint8_t { half, interleaved };  // pairs (i, i + n/2), or (2i, 2i + 1)
// clamped_swiglu (gpt-oss): g sigmoid(1.702 g) (u + 1), with the gate g at most, and u within, a limit.
enum class HiddenActivation : uint8_t { silu, gelu_tanh, gelu_erf, relu, clamped_swiglu };

// One rotation scheme; layers refer to it by index. Frequencies are theta^(-2i/rotated), then scaled.
struct RopeSpec {
  enum class Scaling : uint8_t { none, linear, llama3, yarn, longrope };
  int64_t rotated = 0;  // rotated dims of each head
  double theta = 10000.0;
  Scaling scaling = Scaling::none;
  double factor = 1.0;  // the context is extended by this factor
  int64_t original_context = 0;
  double low_freq_factor = 1.0;  // llama3
  double high_freq_factor = 4.0;
  double beta_fast = 32.0;  // yarn (Peng et al., 2023)
  double beta_slow = 1.0;
  bool truncate = true;             // yarn: the ramp's ends are rounded to whole dims
  double attention_factor = 0.0;    // yarn, longrope: scales cos and sin; 0: the method's own default
  std::vector<float> long_factors;  // per-frequency divisors: longrope past original_context, and GGUF's rope_freqs
  std::vector<float> short_factors;
  // Dynamic NTK scaling: past the model's context the base would grow with the length, which is not supported; within
  // it positions rotate as without scaling.
  bool dynamic = false;

  bool operator==(const RopeSpec&) const = default;
};

struct Router;

struct MoeSpec {
  int64_t experts = 0;        // 0: dense
  int64_t used = 0;           // experts per token
  int64_t hidden = 0;         // width of one expert
  int64_t shared_hidden = 0;  // width of the shared expert; 0: none
  bool shared_gate = false;   // shared expert's output times sigmoid of a learned gate
  bool normalize = true;      // the selected experts' weights sum to 1
  bool sigmoid = false;       // an expert's score is the sigmoid of its logit; else the softmax over all
  float scale = 1.0f;         // factor of the selected experts' weights
  int64_t groups = 1;         // groups of adjacent experts; tokens select from the groups_used best groups
  int64_t groups_used = 1;
  int64_t group_best = 1;  // a group's score is the sum of this many of its best experts' scores
  std::vector<float>
      selection_bias;              // [experts], added to scores to select, not to weigh; set when the model is loaded
  const Router* router = nullptr;  // set when the model is loaded (models/router.h)
  // true: the layer has a dense MLP, too, of width LayerSpec::hidden, and adds the outputs of both
  // (models/blocks/mlp_and_experts.cc). Each has norms before and after it, and the router has its own input.
  bool beside_mlp = false;

  bool operator==(const MoeSpec&) const = default;
};

// A selective state space (models/mixers/mamba.cc, mamba2.cc), or a gated delta net (gated_delta_net.cc).
struct SsmSpec {
  int64_t inner = 0;      // channels
  int64_t state = 0;      // values of each channel's state
  int64_t taps = 0;       // taps of the causal convolution
  int64_t rank = 0;       // Mamba: rank of the projection to step sizes
  bool log_a = false;     // the file stores log(-A), not A
  bool conv_bias = true;  // the convolution has one
  // Mamba-2:
  int64_t heads = 0;        // heads of inner / heads channels, which share a step size and a decay
  int64_t groups = 0;       // groups of adjacent heads, which share B and C
  bool gated_norm = false;  // after the gate, an RMS norm over the channels of each group; true: it must be stored
  std::array<float, 5> scales = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f};  // factors of z, x, B, C and the step sizes
  // Gated delta net: `inner` values in `heads` value heads, `groups` key heads of `state` dims. Value head h reads key
  // head h mod groups if `tiled`, else h / (heads / groups).
  bool tiled = false;

  bool operator==(const SsmSpec&) const = default;
};

// Multi-head latent attention (models/mixers/latent.cc). The layer's head_dim is rank + rotated, its value_dim rank.
struct LatentSpec {
  int64_t rank = 0;        // values of a token's latent
  int64_t rotated = 0;     // dims of the shared rotated key, and of each head's rotated query
  int64_t unrotated = 0;   // dims of each head's other part
  int64_t value = 0;       // dims of each head's values
  int64_t query_rank = 0;  // rank of the projection to queries; 0: one full matrix

  int64_t query() const { return unrotated + rotated; }  // dims of one head's query

  bool operator==(const LatentSpec&) const = default;
};

// Gates of the layers' attention that decide which tokens it stores and sees (models/token_gates.h).
struct GateSizes {
  int64_t dims = 0;      // dims of gates between pairs of tokens; 0: none
  bool selects = false;  // tokens are selected by themselves

  bool operator==(const GateSizes&) const = default;
};

// One of a layer's mixers, and the factor of its output.
struct LayerMixer {
  const Mixer* mixer = &kAttentionMixer;
  float scale = 1.0f;

  bool operator==(const LayerMixer&) const = default;
};

// A layer: its mixers, which move information between tokens, then its MLP. All mixers read the same normed rows, and
// the layer adds their outputs (models/layer_mixers.h). A layer of one kind all over the model leaves its sizes 0:
// set_own_sizes() fills them from ArchSpec.
struct LayerSpec {
  // Keys that a token sees, itself included; 0: all. In a bidirectional layer: a token sees keys at most window / 2
  // positions away, before and behind it.
  int64_t window = 0;
  int rope = 0;  // index into ArchSpec::ropes; -1: no positions
  bool moe = false;
  bool mlp = true;  // false: the layer is its mixers alone
  std::vector<LayerMixer> mixers = std::vector<LayerMixer>(1);
  bool mixer_norm = true;  // false: the mixers read the rows without the model's norm before them
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;   // dims of queries and keys
  int64_t value_dim = 0;  // dims of values
  int64_t hidden = 0;     // inner width of the dense MLP
  MoeSpec experts;        // experts of the mixture
  SsmSpec ssm;
  LatentSpec latent;
  // Attention's output is multiplied by the sigmoid of a gate. The query matrix has, head by head, the query's rows,
  // then as many of the gate.
  bool attention_gate = false;
  // Index of the earlier layer whose keys and values attention reads; the layer then stores none. -1: its own.
  int64_t kv_from = -1;

  // Above 0: an MLP's gate loses its mean and this many standard deviations, and is cut at 0 before its activation.
  float gate_cut = 0.0f;

  // Index of the layer that stores the keys and values of this layer, whose index is `own`.
  int64_t stored_by(int64_t own) const { return kv_from >= 0 ? kv_from : own; }
  bool has_dense_mlp() const { return mlp && (!moe || experts.beside_mlp); }

  bool operator==(const LayerSpec&) const = default;
};

inline constexpr int64_t kMaxStreams = 8;  // largest ArchSpec::streams

struct ArchSpec {
  std::string arch;  // "llama"
  std::string name;  // general.name or the folder, for display
  int64_t vocab = 0;
  int64_t context = 0;  // trained length
  int64_t width = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t hidden = 0;  // inner width of the dense MLP
  bool gated = true;   // down(act(gate x) * up x), or down(act(up x))
  HiddenActivation activation = HiddenActivation::silu;
  float activation_limit = 7.0f;  // limit of clamped_swiglu
  float gate_scale = 1.0f;        // factor of an MLP's gate, before its activation
  float mlp_scale = 1.0f;         // factor of a gated MLP's output
  NormKind norm = NormKind::rms;
  float norm_eps = 1e-5f;
  float norm_offset = 0.0f;  // Gemma's checkpoints hold w - 1
  bool pre_norm = true;      // norm before attention and MLP
  bool post_norm = false;    // norm of attention's and MLP's output before the residual sum
  // A norm of the sum of the residual and a block's output, after attention and after the MLP (BERT). The model then
  // has no norm after its last layer.
  bool sum_norm = false;
  QkNorm qk_norm = QkNorm::none;
  bool value_norm = false;      // RMS norm over each head's values, without weights
  bool keys_as_values = false;  // layers without attn_v take their keys, before norm and rotation, as values
  bool layer_scales = false;    // a layer's output is multiplied by a number that the file may store
  // Dims of the input of its own that each layer has of a token (models/blocks/layer_inputs.cc); 0: none.
  int64_t layer_input = 0;
  // Residual streams, of which the layers compute one and predict the others (models/blocks/alt_up.cc).
  int64_t streams = 1;
  int64_t active_stream = 0;
  int64_t laurel_rank = 0;  // rank of the matrix pair that runs next to attention (LAuReL); 0: none
  // The model reads whole texts: its layers are bidirectional, and its result is the final hidden states. It has no
  // head, so it generates no text.
  bool encoder = false;
  bool embedding_norm = false;  // norm of the sum of a token's embeddings
  // Rows of the table of token types, which are added to embeddings; 0: none. A token behind the first separator of its
  // text has type 1, if there are several types; all others have type 0. Set when the model is loaded.
  int64_t token_types = 0;
  bool learned_positions = false;
  int64_t first_position = 0;  // row of the stored table of positions that a text's first token adds (RoBERTa: 2)
  // Bidirectional layers subtract slope * |distance| from scores (ALiBi). Head h of n has the slope 2^(-alibi (h + 1) /
  // n) if n is a power of two. 0: they subtract nothing.
  float alibi = 0.0f;
  RopeStyle rope_style = RopeStyle::half;
  std::vector<RopeSpec> ropes;
  float embedding_scale = 1.0f;
  float attention_scale = 0.0f;  // factor of q k; 0: 1 / sqrt(head_dim)
  float residual_scale = 1.0f;
  float logit_scale = 1.0f;
  float attention_softcap = 0.0f;
  bool attention_sinks = false;  // each head's softmax has one more, learned logit, whose weight multiplies no value
  float final_softcap = 0.0f;
  MoeSpec moe;
  std::vector<LayerSpec> layers;
  PartSizes parts;  // sizes of the weights' parts; set when the model is loaded
  GateSizes gates;  // likewise

  int64_t layer_count() const { return static_cast<int64_t>(layers.size()); }
};

// Returns true if some layers read the keys and values of earlier layers.
inline bool shares_keys(const ArchSpec& spec) {
  return std::ranges::any_of(spec.layers, [](const LayerSpec& layer) { return layer.kv_from >= 0; });
}

// Sizes that the layer leaves 0 are the model's.
inline void set_own_sizes(const ArchSpec& spec, LayerSpec& layer) {
  const auto set = [](int64_t& size, int64_t otherwise) { size = size > 0 ? size : otherwise; };
  set(layer.heads, spec.heads);
  set(layer.kv_heads, spec.kv_heads);
  set(layer.head_dim, spec.head_dim);
  set(layer.value_dim, layer.head_dim);
  if (layer.moe && layer.experts.experts == 0) layer.experts = spec.moe;
  if (layer.has_dense_mlp()) set(layer.hidden, spec.hidden);
}

}  // namespace millrace
