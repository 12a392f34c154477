// E8P_4: 256 values under one scale; eight of them are a point of the lattice of E8P and one of the same for what
// is left (e8p_residual.h), in 4 bits a value. Tseng et al., 2024. value = d * level. Frozen, on disk:
//
//   byte 0    2                         66                       130
//        | d  | c0 | c1 | ... | c31 | r0 | r1 | ... | r31 |       d: f16, of the levels; c, r: 16 bits, little-endian
#include "formats/e8p_residual_block.h"
#include "formats/format.h"

namespace millrace {
namespace {

struct Code {
  static constexpr int kBytes = kE8p4BlockBytes;
  static constexpr float kUnit = kE8p4Unit;
  static constexpr float kBestPart = 1.09f;
  static E8pResidual nearest(const float* x) { return nearest_e8p_4(x); }
  static void levels(uint32_t code, int8_t* out) { e8p_4_levels(code, out); }
  static uint32_t load(const uint8_t* block, int p) { return load_e8p_4(block, p); }
  static void store(uint8_t* block, int p, uint32_t code) { store_e8p_4(block, p, code); }
};

}  // namespace

extern const Format kE8p4 = {
    .name = "e8p_4",
    .summary = "4.06 bits a value: 8 are a point of e8p and one of the same lattice for the rest, one scale for 256",
    .paper = "Tseng et al., 2024, QuIP#: Even Better LLM Quantization with Hadamard Incoherence and Lattice Codebooks",
    .gguf_type = kGgufE8p4,
    .safetensors = "",
    .block_values = kE8pBlockValues,
    .block_bytes = kE8p4BlockBytes,
    .activation = Activation::q8,
    .decode = decode_residual<Code>,
    .encode = encode_residual<Code>,
    .find_non_finite = find_non_finite_residual<Code>,
};

}  // namespace millrace
