// Phi-3: Llama with fused QKV and fused gate-up projections, long-context variants with LongRoPE.

#include "base/ordered_json.h"
#include "models/arch/builtin.h"
#include "models/arch/common.h"
#include "models/arch/writing.h"

namespace millrace {
namespace {

void read_phi3_gguf(ConfigReader& meta, ArchSpec& spec) {
  int64_t window = meta.count_or("attention.sliding_window", 0, 0, kMaxContext);
  if (window < spec.context) alternate_windows(spec, window, 0);
}

void read_phi3(ConfigReader& config, ArchSpec& spec) {
  read_huggingface_windows(config, spec, 0);
  RopeSpec& rope = spec.ropes[0];
  if (rope.scaling == RopeSpec::Scaling::longrope && rope.original_context > 0)
    rope.factor = static_cast<double>(spec.context) / static_cast<double>(rope.original_context);
}

void write_phi3(const ArchSpec& spec, nlohmann::ordered_json& config) {
  config["original_max_position_embeddings"] = spec.ropes[0].original_context;
  write_huggingface_windows(spec, config);
}

}  // namespace

const Arch kPhi3 = {
    .name = "phi3",
    .huggingface = {"Phi3ForCausalLM"},
    .huggingface_type = "phi3",
    .summary = "Llama with fused QKV and gate-up matrices, LongRoPE for long contexts",
    .paper =
        "Abdin et al., 2024, Phi-3 Technical Report: A Highly Capable Language Model Locally on Your Phone; Ding et "
        "al., 2024, LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens",
    .read_gguf = read_phi3_gguf,
    .read_huggingface = read_phi3,
    .names = {{"blk.{l}.attn_qkv.weight", "model.layers.{l}.self_attn.qkv_proj.weight"},
              {"blk.{l}.ffn_up.weight", "model.layers.{l}.mlp.gate_up_proj.weight"}},
    .write_huggingface = write_phi3,
};

}  // namespace millrace
