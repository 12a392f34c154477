// Llama 1, 2 and 3.x, and all models of the same architecture (SmolLM, TinyLlama, Yi ...).
#include "models/arch/builtin.h"
#include "models/arch/common.h"

namespace millrace {
namespace {

void read_llama_gguf(ConfigReader& meta, ArchSpec& spec) {
  if (int64_t window = meta.count_or("attention.sliding_window", 0, 0, kMaxContext)) alternate_windows(spec, window, 0);
}

}  // namespace

const Arch kLlama = {
    .name = "llama",
    .huggingface = {"LlamaForCausalLM",
                    "LlamaForCausalContextLM"},  // the latter: with document encoders, docs/document-contexts.md
    .huggingface_type = "llama",
    .summary =
        "RMSNorm, rotary positions, SwiGLU, grouped-query attention; optional biases, linear / llama3 / YaRN scaling",
    .paper =
        "Touvron et al., 2023, LLaMA: Open and Efficient Foundation Language Models; Grattafiori et al., 2024, The "
        "Llama 3 Herd of Models",
    .gguf_rope = RopeStyle::interleaved,
    .read_gguf = read_llama_gguf,
};

}  // namespace millrace
