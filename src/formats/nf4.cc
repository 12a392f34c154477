// NF4: 32 values, each one of 16 quantiles of a normal distribution (code_tables.h), with one scale: the largest
// magnitude. Dettmers et al., 2023. What checkpoints of bitsandbytes become; no file has this layout, which is
// IQ4_NL's:
//
//   byte 0    2                             18
//        | d  | q16|q0  q17|q1 ... q31|q15  |      d: f16; value = d * kNf4Unit * kNf4Codes[q]
#include "formats/code_block.h"
#include "formats/code_tables.h"
#include "formats/format.h"

namespace millrace {
namespace {

constexpr CodeBlock kBlock = {kNf4Codes, kNf4Unit};

void decode(const uint8_t* source, float* destination, int64_t n) { kBlock.decode(source, destination, n); }
void encode(const float* source, uint8_t* destination, int64_t n) { kBlock.encode(source, destination, n); }

}  // namespace

extern const Format kNf4 = {
    .name = "nf4",
    .summary = "4 bits a value from quantiles of a normal distribution, one scale for 32",
    .paper = "Dettmers et al., 2023, QLoRA: Efficient Finetuning of Quantized LLMs",
    .gguf_type = -1,
    .safetensors = "",
    .block_values = CodeBlock::kValues,
    .block_bytes = CodeBlock::kBytes,
    .activation = Activation::q8_shift,
    .decode = decode,
    .encode = encode,
    .find_non_finite = CodeBlock::find_non_finite,
    .levels = 16,
    .set_level = CodeBlock::set_level,
};

}  // namespace millrace
