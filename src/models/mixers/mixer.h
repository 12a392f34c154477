// Mixer: moves information between the tokens of a stream. Each mixer is one file in models/mixers/. A layer names its
// mixers (LayerSpec::mixers); layers of one model may have different ones. A mixer's run has two halves. begin()
// updates the stream's stored data with all tokens of the batch. finish() computes the outputs, in the last layer only
// for the tokens whose logits are needed. models/layer_mixers.h runs the mixers of a layer together.
#pragma once

#include <string>
#include <string_view>

#include "base/registry.h"
#include "flow/batch.h"
#include "kernels/linear.h"
#include "kv/pool.h"
#include "models/arch_spec.h"
#include "models/forward_sizes.h"
#include "models/model.h"

namespace millrace {

class ForwardContext;
class WeightLoader;

// Data that a stream keeps of its earlier tokens for one mixer.
enum class StateKind : uint8_t {
  keys,       // keys and values of every token, in blocks of the KV pool
  latent,     // one row per token that all heads share, in blocks; a value is the first part of its key
  recurrent,  // a state of fixed size, in a slot of the pool's StatePool
  none,       // nothing: a text runs in one pass
};

struct MixerCall {
  const ArchSpec& spec;
  const LayerSpec& layer;
  int64_t index;  // index of the layer
  const LayerWeights& weights;
  const Batch& batch;
  ForwardContext& context;
};

// Rows that finish() reads, one a token: in the last layer, only those of the output rows are kept.
struct MixedRows {
  float* rows = nullptr;  // [tokens, width]
  int64_t width = 0;
  float* gates = nullptr;  // [tokens, gate_width], in addition; null: none
  int64_t gate_width = 0;
};

struct Mixer {
  std::string_view name;
  std::string_view summary;
  std::string_view paper;
  std::string_view test;
  StateKind state_kind = StateKind::keys;
  // Returns the problem with the layer's sizes, or an empty text.
  std::string (*problem)(const ArchSpec& spec, const LayerSpec& layer) = nullptr;
  // The layer's part of the KV pool.
  KvLayer (*state)(const LayerSpec& layer) = nullptr;
  // Declares the working memory that the layer needs.
  void (*declare)(const LayerSpec& layer, const ForwardLimits& limits, int threads, ForwardSizes& sizes) = nullptr;
  // Loads the layer's tensors; `prefix` is "blk.3.". Errors: corrupt, unsupported.
  Result<void> (*load)(WeightLoader& loader, const std::string& prefix, const ArchSpec& spec, const LayerSpec& layer,
                       LayerWeights& weights) = nullptr;
  // The matrix that reads the normed rows first.
  const Weight& (*first)(const LayerWeights& weights) = nullptr;
  // context.normed, rounded in `x` for first() -> rows(). The layer's other mixers read context.normed, too.
  void (*begin)(const MixerCall& call, const ActivationRows& x) = nullptr;
  MixedRows (*rows)(const LayerSpec& layer, ForwardContext& context) = nullptr;
  // rows() -> context.block_out
  void (*finish)(const MixerCall& call) = nullptr;
};

extern const Mixer kLatentMixer;  // kAttentionMixer, kBidirectionalMixer: arch_spec.h
extern const Mixer kMambaMixer;
extern const Mixer kMamba2Mixer;
extern const Mixer kGatedDeltaNetMixer;

const Registry<const Mixer*>& mixers();

// The parts of the KV pool of a model's layers.
std::vector<KvLayer> layer_states(const ArchSpec& spec);

}  // namespace millrace
