// SmolLM3: Llama where every fourth layer has no positions at all (NoPE).
#include <fmt/format.h>

#include "base/ordered_json.h"
#include "models/arch/builtin.h"
#include "models/arch/common.h"
#include "models/arch/writing.h"

namespace millrace {
namespace {

void drop_every(ArchSpec& spec, int64_t interval) {
  for (int64_t i = 0; i < spec.layer_count(); ++i)
    if (interval > 0 && (i + 1) % interval == 0) spec.layers[i].rope = -1;
}

void read_smollm3_gguf(ConfigReader&, ArchSpec& spec) { drop_every(spec, 4); }

void read_smollm3(ConfigReader& config, ArchSpec& spec) {
  const int64_t interval = config.count_or("no_rope_layer_interval", 4, 0, kMaxLayers);
  auto layers = config.numbers_or_empty("no_rope_layers");  // 1: rope, 0: none
  if (layers.empty()) {
    drop_every(spec, interval);
  } else if (layers.size() != spec.layers.size()) {
    config.fail(Error::corrupt(fmt::format("{}: no_rope_layers has {} entries for {} layers", config.source(),
                                           layers.size(), spec.layers.size())));
  } else {
    for (size_t i = 0; i < layers.size(); ++i) spec.layers[i].rope = layers[i] != 0 ? 0 : -1;
  }
  if (!config.flag_or("use_sliding_window", false)) return skip_huggingface_windows(config);
  config.has("max_window_layers");
  read_huggingface_windows(config, spec, 0);
}

void write_smollm3(const ArchSpec& spec, nlohmann::ordered_json& config) {
  auto& turns = config["no_rope_layers"] = nlohmann::ordered_json::array();
  for (const LayerSpec& layer : spec.layers) turns.push_back(layer.rope >= 0 ? 1 : 0);
  config["use_sliding_window"] = first_window(spec) > 0;
  write_huggingface_windows(spec, config);
  write_layer_types(spec, config);
}

}  // namespace

const Arch kSmolLm3 = {
    .name = "smollm3",
    .huggingface = {"SmolLM3ForCausalLM"},
    .huggingface_type = "smollm3",
    .summary = "Llama with every fourth layer without positions",
    .paper = "Yang et al., 2025, Rope to Nope and Back Again: A New Hybrid Attention Strategy",
    .gguf_rope = RopeStyle::interleaved,
    .read_gguf = read_smollm3_gguf,
    .read_huggingface = read_smollm3,
    .write_huggingface = write_smollm3,
};

}  // namespace millrace
