// Qwen2, Qwen3 and their mixtures of experts.
#include <fmt/format.h>

#include "base/ordered_json.h"
#include "models/arch/builtin.h"
#include "models/arch/common.h"
#include "models/arch/writing.h"

namespace millrace {
namespace {

// use_sliding_window is off in all published dense checkpoints; if on, layers from max_window_layers on are sliding.
void read_windows(ConfigReader& config, ArchSpec& spec) {
  if (!config.flag_or("use_sliding_window", false)) return skip_huggingface_windows(config);
  const int64_t first = config.count_or("max_window_layers", spec.layer_count(), 0, kMaxLayers);
  if (!config.texts_or_empty("layer_types").empty()) {
    read_huggingface_windows(config, spec, 0);
    return;
  }
  const int64_t window = config.count_or("sliding_window", 0, 0, kMaxContext);
  for (int64_t i = first; i < spec.layer_count(); ++i) spec.layers[i].window = window;
}

void read_qwen3_gguf(ConfigReader&, ArchSpec& spec) { spec.qk_norm = QkNorm::head; }

void read_qwen3(ConfigReader& config, ArchSpec& spec) {
  spec.qk_norm = QkNorm::head;
  read_windows(config, spec);
}

void read_qwen2moe_gguf(ConfigReader&, ArchSpec& spec) {
  spec.moe.normalize = false;
  spec.moe.shared_gate = spec.moe.shared_hidden > 0;
}

void read_qwen2moe(ConfigReader& config, ArchSpec& spec) {
  read_windows(config, spec);
  read_huggingface_moe(config, spec, "num_experts", "moe_intermediate_size");
  spec.moe.normalize = config.flag_or("norm_topk_prob", false);
  spec.moe.shared_hidden = config.count_or("shared_expert_intermediate_size", 0, 0, kMaxWidth);
  spec.moe.shared_gate = spec.moe.shared_hidden > 0;
  read_huggingface_moe_layers(config, spec);
}

void read_qwen3moe(ConfigReader& config, ArchSpec& spec) {
  read_qwen3(config, spec);
  read_huggingface_moe(config, spec, "num_experts", "moe_intermediate_size");
  spec.moe.normalize = config.flag_or("norm_topk_prob", false);
  read_huggingface_moe_layers(config, spec);
}

void write_qwen(const ArchSpec& spec, nlohmann::ordered_json& config) {
  write_huggingface_windows(spec, config);
  config["use_sliding_window"] = first_window(spec) > 0;
}

void write_moe_gguf(const ArchSpec& spec, nlohmann::ordered_json& meta) {
  meta["expert_weights_norm"] = spec.moe.normalize;
}

void write_qwen_moe(const ArchSpec& spec, nlohmann::ordered_json& config) {
  write_qwen(spec, config);
  write_huggingface_moe(spec, config);
}

}  // namespace

const Arch kQwen2 = {
    .name = "qwen2",
    .huggingface = {"Qwen2ForCausalLM"},
    .huggingface_type = "qwen2",
    .summary = "Llama with biases on Q, K and V",
    .paper = "Yang et al., 2024, Qwen2 Technical Report",
    .read_huggingface = read_windows,
    .write_huggingface = write_qwen,
};
const Arch kQwen3 = {
    .name = "qwen3",
    .huggingface = {"Qwen3ForCausalLM"},
    .huggingface_type = "qwen3",
    .summary = "Llama with RMSNorm over each query and key head",
    .paper = "Yang et al., 2025, Qwen3 Technical Report",
    .read_gguf = read_qwen3_gguf,
    .read_huggingface = read_qwen3,
    .write_huggingface = write_qwen,
};
const Arch kQwen2Moe = {
    .name = "qwen2moe",
    .huggingface = {"Qwen2MoeForCausalLM"},
    .huggingface_type = "qwen2_moe",
    .summary = "Qwen2 with fine-grained experts and a gated shared expert",
    .paper = "Yang et al., 2024, Qwen2 Technical Report",
    .read_gguf = read_qwen2moe_gguf,
    .read_huggingface = read_qwen2moe,
    .write_gguf = write_moe_gguf,
    .write_huggingface = write_qwen_moe,
};
const Arch kQwen3Moe = {
    .name = "qwen3moe",
    .huggingface = {"Qwen3MoeForCausalLM"},
    .huggingface_type = "qwen3_moe",
    .summary = "Qwen3 with fine-grained experts",
    .paper = "Yang et al., 2025, Qwen3 Technical Report",
    .read_gguf = read_qwen3_gguf,
    .read_huggingface = read_qwen3moe,
    .write_gguf = write_moe_gguf,
    .write_huggingface = write_qwen_moe,
};

}  // namespace millrace
