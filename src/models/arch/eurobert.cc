// EuroBERT: Llama's layers, bidirectional.
#include "models/arch/builtin.h"
#include "models/arch/encoders.h"

namespace millrace {
namespace {

void read_eurobert_file(ConfigReader& config, ArchSpec& spec) { set_encoder(config, spec); }

}  // namespace

const Arch kEuroBert = {
    .name = "eurobert",
    .huggingface = {"EuroBertModel", "EuroBertForMaskedLM"},
    .huggingface_type = "eurobert",
    .summary = "Encoder with Llama's layers: RMSNorm, rotary positions, SwiGLU, grouped-query attention",
    .paper = "Boizard et al., 2025, EuroBERT: Scaling Multilingual Encoders for European Languages",
    .read_gguf = read_eurobert_file,
    .read_huggingface = read_eurobert_file,
};

}  // namespace millrace
