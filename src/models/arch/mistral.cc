// Mistral 7B: Llama with a sliding window. GGUF files call it "llama".
#include "models/arch/builtin.h"
#include "models/arch/common.h"

namespace millrace {
namespace {

void read_gguf(ConfigReader& meta, ArchSpec& spec) {
  alternate_windows(spec, meta.count_or("attention.sliding_window", 0, 0, kMaxContext), 0);
}

void read_huggingface(ConfigReader& config, ArchSpec& spec) { read_huggingface_windows(config, spec, 0); }

}  // namespace

const Arch kMistral = {
    .name = "mistral",
    .huggingface = {"MistralForCausalLM", "mistral"},
    .summary = "Llama with sliding-window attention",
    .paper = "Jiang et al., 2023, Mistral 7B",
    .gguf_rope = RopeStyle::interleaved,
    .read_gguf = read_gguf,
    .read_huggingface = read_huggingface,
};

}  // namespace millrace
