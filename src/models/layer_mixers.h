// LayerMixers: the mixers of one layer, which run together. Their order in LayerSpec::mixers is the order in which they
// run. Each reads the layer's normed rows, and the layer's output is the sum of their outputs, each times its factor. A
// layer with one mixer runs that mixer's instructions alone.
//
// A layer has at most one mixer in addition to attention: LayerWeights and ForwardContext have room for one.
#pragma once

#include <string>

#include "models/mixers/mixer.h"

namespace millrace {

// Returns true if some mixer of the layer, or of some layer, keeps data of this kind.
bool keeps(const LayerSpec& layer, StateKind kind);
bool keeps(const ArchSpec& spec, StateKind kind);

// Returns true if attention is the layer's only mixer, and its output is taken as it is.
bool is_plain_attention(const LayerSpec& layer);

// Returns the problem with the layer's mixers or their sizes, or an empty text.
std::string mixers_problem(const ArchSpec& spec, const LayerSpec& layer);

// The layer's part of the KV pool: what all of its mixers keep.
KvLayer layer_state(const LayerSpec& layer);

// Loads the tensors of all mixers of the layer. Errors: corrupt, unsupported.
Result<void> load_mixers(WeightLoader& loader, const std::string& prefix, const ArchSpec& spec, const LayerSpec& layer,
                         LayerWeights& weights);

// The matrix that reads the normed rows first.
const Weight& first_matrix(const LayerSpec& layer, const LayerWeights& weights);

// The two halves of all mixers. begin_mixers(): context.normed, rounded in `x` for first_matrix() -> the rows of each
// mixer. finish_mixers(): these rows -> context.block_out; context.normed is lost if the layer has several mixers.
void begin_mixers(const MixerCall& call, const ActivationRows& x);
void finish_mixers(const MixerCall& call);

}  // namespace millrace
