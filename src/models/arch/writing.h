// The reverse direction: an ArchSpec as GGUF metadata or as config.json, for the fields that all architectures write
// the same way. Differences are in the architecture's write_gguf or write_huggingface hook.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/arch.h"

namespace millrace {

// A tensor that a GGUF file stores instead of a key: rope_freqs.weight, rope_factors_long.weight ...
struct FactorTensor {
  std::string name;
  std::vector<float> values;
};

// The keys after "ARCH." (architecture hook included), and the factor tensors.
nlohmann::ordered_json write_arch_gguf(const Arch& arch, const ArchSpec& spec, std::vector<FactorTensor>& factors);

// config.json without token ids and dtype, hook included. `head` and the biases tell which tensors exist.
struct WrittenTensors {
  bool head = false, attention_bias = false, mlp_bias = false;
  bool conv_bias = false, ssm_norm = false;  // parts of recurrent mixers
  bool predictions = false;                  // a layer for predictions is stored
};
nlohmann::ordered_json write_arch_huggingface(const Arch& arch, const ArchSpec& spec, const WrittenTensors& tensors);

// The member that writes Hugging Face folders for this spec, and the one that writes GGUF files.
const Arch* arch_for_huggingface(const ArchSpec& spec);
const Arch* arch_for_gguf(const Arch& arch);

// The first difference between two specs that would change an output; empty if none. Names, the order of rotated pairs
// and the offset of norms are conventions of the file kind and do not count.
std::string spec_difference(const ArchSpec& left, const ArchSpec& right);

// For hooks.
int64_t first_window(const ArchSpec& spec);    // 0: no layer has one
int64_t window_pattern(const ArchSpec& spec);  // every n-th layer sees all keys; 0: none does, or there is no such n
void write_huggingface_windows(const ArchSpec& spec, nlohmann::ordered_json& config);
void write_layer_types(const ArchSpec& spec, nlohmann::ordered_json& config);
void write_huggingface_moe(const ArchSpec& spec, nlohmann::ordered_json& config);  // fields of Qwen's families
void write_softcap(nlohmann::ordered_json& config, const char* key, float value);  // 0: null
double plain_number(float value);  // the shortest decimal that rounds to `value`: 1e-05, not 9.99999974e-06

}  // namespace millrace
