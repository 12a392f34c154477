// Mixtral: Mistral whose MLP is a mixture of experts. GGUF files call it "llama" with expert_count.
#include "models/arch/builtin.h"
#include "models/arch/common.h"

namespace millrace {
namespace {

void read_huggingface(ConfigReader& config, ArchSpec& spec) {
  read_huggingface_windows(config, spec, 0);
  read_huggingface_moe(config, spec, "num_local_experts", "intermediate_size");
}

}  // namespace

const Arch kMixtral = {
    .name = "mixtral",
    .huggingface = {"MixtralForCausalLM", "mixtral"},
    .summary = "Mistral with a top-k mixture of experts as MLP",
    .paper = "Jiang et al., 2024, Mixtral of Experts",
    .gguf_rope = RopeStyle::interleaved,
    .read_huggingface = read_huggingface,
    .names = {{"blk.{l}.ffn_gate_inp.weight", "model.layers.{l}.block_sparse_moe.gate.weight"},
              {"blk.{l}.ffn_gate.{e}.weight", "model.layers.{l}.block_sparse_moe.experts.{e}.w1.weight"},
              {"blk.{l}.ffn_down.{e}.weight", "model.layers.{l}.block_sparse_moe.experts.{e}.w2.weight"},
              {"blk.{l}.ffn_up.{e}.weight", "model.layers.{l}.block_sparse_moe.experts.{e}.w3.weight"}},
};

}  // namespace millrace
