// Mixtral: Mistral whose MLP is a mixture of experts. GGUF files call it "llama" with expert_count.

#include "base/ordered_json.h"
#include "models/arch/builtin.h"
#include "models/arch/common.h"
#include "models/arch/writing.h"

namespace millrace {
namespace {

void read_mixtral(ConfigReader& config, ArchSpec& spec) {
  read_huggingface_windows(config, spec, 0);
  read_huggingface_moe(config, spec, "num_local_experts", "intermediate_size");
}

bool mixes(const ArchSpec& spec) { return spec.moe.experts > 0; }

void write_mixtral(const ArchSpec& spec, nlohmann::ordered_json& config) {
  write_huggingface_windows(spec, config);
  config["intermediate_size"] = spec.moe.hidden;
  config["num_local_experts"] = spec.moe.experts;
  config["num_experts_per_tok"] = spec.moe.used;
}

}  // namespace

const Arch kMixtral = {
    .name = "mixtral",
    .huggingface = {"MixtralForCausalLM"},
    .huggingface_type = "mixtral",
    .summary = "Mistral with a top-k mixture of experts as MLP",
    .paper = "Jiang et al., 2024, Mixtral of Experts",
    .gguf_rope = RopeStyle::interleaved,
    .read_huggingface = read_mixtral,
    .names = {{"blk.{l}.ffn_gate_inp.weight", "model.layers.{l}.block_sparse_moe.gate.weight"},
              {"blk.{l}.ffn_gate.{e}.weight", "model.layers.{l}.block_sparse_moe.experts.{e}.w1.weight"},
              {"blk.{l}.ffn_down.{e}.weight", "model.layers.{l}.block_sparse_moe.experts.{e}.w2.weight"},
              {"blk.{l}.ffn_up.{e}.weight", "model.layers.{l}.block_sparse_moe.experts.{e}.w3.weight"}},
    .gguf_name = "llama",
    .takes = mixes,
    .write_huggingface = write_mixtral,
};

}  // namespace millrace
