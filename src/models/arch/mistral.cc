// Mistral 7B: Llama with a sliding window. GGUF files call it "llama".

#include "base/ordered_json.h"
#include "models/arch/builtin.h"
#include "models/arch/common.h"
#include "models/arch/writing.h"

namespace millrace {
namespace {

void read_mistral_gguf(ConfigReader& meta, ArchSpec& spec) {
  alternate_windows(spec, meta.count_or("attention.sliding_window", 0, 0, kMaxContext), 0);
}

void read_mistral(ConfigReader& config, ArchSpec& spec) { read_huggingface_windows(config, spec, 0); }

bool slides(const ArchSpec& spec) { return spec.moe.experts == 0 && first_window(spec) > 0; }
void write_windows(const ArchSpec& spec, nlohmann::ordered_json& config) { write_huggingface_windows(spec, config); }

}  // namespace

const Arch kMistral = {
    .name = "mistral",
    .huggingface = {"MistralForCausalLM"},
    .huggingface_type = "mistral",
    .summary = "Llama with sliding-window attention",
    .paper = "Jiang et al., 2023, Mistral 7B",
    .gguf_rope = RopeStyle::interleaved,
    .read_gguf = read_mistral_gguf,
    .read_huggingface = read_mistral,
    .gguf_name = "llama",
    .takes = slides,
    .write_huggingface = write_windows,
};

}  // namespace millrace
