// Fields that nearly all architectures read the same way, from either file kind.
#pragma once

#include "formats/format.h"
#include "models/arch.h"

namespace millrace {

inline constexpr int64_t kMaxWidth = 1 << 20;  // widths, hidden sizes, heads x dim
inline constexpr int64_t kMaxLayers = 4096;
inline constexpr int64_t kMaxVocab = 1 << 24;
inline constexpr int64_t kMaxContext = int64_t{1} << 31;
inline constexpr int64_t kMaxExperts = 65536;
inline constexpr int64_t kMaxTaps = 64;     // taps of a causal convolution
inline constexpr int64_t kMaxState = 4096;  // values of one channel's state

// `by_layer`: KV heads and widths of dense MLPs may be lists with an entry for each layer.
void read_common_gguf(ConfigReader& meta, ArchSpec& spec, const ModelFiles& files, bool by_layer = false);
void read_gguf_vocab(ConfigReader& meta, ArchSpec& spec, const ModelFiles& files);
void read_common_huggingface(ConfigReader& config, ArchSpec& spec);

// GGUF's ARCH.hidden_activation, whose names are those of Hugging Face's hidden_act. llama.cpp reads and writes this
// key for encoders only; the values that it writes for other models, and those of PowerInfer, name no activation.
void read_gguf_activation(ConfigReader& meta, ArchSpec& spec);
const char* activation_name(HiddenActivation activation);

// Every `pattern`-th layer sees all keys, the others only the last `window`.
void alternate_windows(ArchSpec& spec, int64_t window, int64_t pattern);

// GGUF's attention.sliding_window_pattern as a list of flags: the layers that see `window` keys.
void read_gguf_window_layers(ConfigReader& meta, ArchSpec& spec, int64_t window);

// The last `shared` layers read the keys and values of the last layer before them that has a window as they do, or none
// as they do (LayerSpec::kv_from). Fails if there is no such layer.
void share_last_keys(ConfigReader& config, ArchSpec& spec, int64_t shared);

// Window and sliding-layer pattern from config.json's sliding_window and layer_types, where present.
void read_huggingface_windows(ConfigReader& config, ArchSpec& spec, int64_t default_pattern);

// Notes the fields above as read, for files that switch windows off. Fails if layer_types names other kinds of layers.
void skip_huggingface_windows(ConfigReader& config);

// Mixture-of-experts fields of config.json.
void read_huggingface_moe(ConfigReader& config, ArchSpec& spec, std::string_view experts_key,
                          std::string_view hidden_key);

// Layers in config.json's mlp_only_layers, and those off its decoder_sparse_step, have a dense MLP.
void read_huggingface_moe_layers(ConfigReader& config, ArchSpec& spec);

}  // namespace millrace
