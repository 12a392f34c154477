// E8P_3: 256 values under one scale; eight of them are a point of the lattice of E8P and one of 256 of E8 for what
// is left (e8p_residual.h), in 3 bits a value. Tseng et al., 2024. value = d * level. Frozen, on disk:
//
//   byte 0    2                         66                        98
//        | d  | c0 | c1 | ... | c31 | r0 | r1 | ... | r31 |       d: f16, of the levels; c: 16 bits, little-endian; r:
//        8
#include "formats/e8p_residual_block.h"
#include "formats/format.h"

namespace millrace {
namespace {

struct Code {
  static constexpr int kBytes = kE8p3BlockBytes;
  static constexpr float kUnit = kE8p3Unit;
  static constexpr float kBestPart = 1.02f;
  static E8pResidual nearest(const float* x) { return nearest_e8p_3(x); }
  static void levels(uint32_t code, int8_t* out) { e8p_3_levels(code, out); }
  static uint32_t load(const uint8_t* block, int p) { return load_e8p_3(block, p); }
  static void store(uint8_t* block, int p, uint32_t code) { store_e8p_3(block, p, code); }
};

}  // namespace

extern const Format kE8p3 = {
    .name = "e8p_3",
    .summary = "3.06 bits a value: 8 are a point of e8p and one of 256 for the rest, one scale for 256",
    .paper = "Tseng et al., 2024, QuIP#: Even Better LLM Quantization with Hadamard Incoherence and Lattice Codebooks",
    .gguf_type = kGgufE8p3,
    .safetensors = "",
    .block_values = kE8pBlockValues,
    .block_bytes = kE8p3BlockBytes,
    .activation = Activation::q8_shift,
    .decode = decode_residual<Code>,
    .encode = encode_residual<Code>,
    .find_non_finite = find_non_finite_residual<Code>,
};

}  // namespace millrace
