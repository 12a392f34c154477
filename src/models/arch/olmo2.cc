// OLMo 2: norms after each block instead of before; RMSNorm over the whole query and key vectors.
#include "models/arch/builtin.h"
#include "models/arch/common.h"

namespace millrace {
namespace {

void set_olmo2(ArchSpec& spec) {
  spec.pre_norm = false;
  spec.post_norm = true;
  spec.qk_norm = QkNorm::full;
}

void read_olmo2_gguf(ConfigReader&, ArchSpec& spec) { set_olmo2(spec); }
void read_olmo2(ConfigReader&, ArchSpec& spec) { set_olmo2(spec); }

}  // namespace

const Arch kOlmo2 = {
    .name = "olmo2",
    .huggingface = {"Olmo2ForCausalLM"},
    .huggingface_type = "olmo2",
    .summary = "Norms after each block only, RMSNorm over whole queries and keys",
    .paper = "OLMo Team, 2024, 2 OLMo 2 Furious",
    .read_gguf = read_olmo2_gguf,
    .read_huggingface = read_olmo2,
    .names = {{"blk.{l}.post_attention_norm.weight", "model.layers.{l}.post_attention_layernorm.weight"},
              {"blk.{l}.post_ffw_norm.weight", "model.layers.{l}.post_feedforward_layernorm.weight"}},
};

}  // namespace millrace
