// Instruction sets and number of cores of this processor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

// Instructions that a kernel may need beyond the baseline. The operating system must save the registers.
enum class Feature : uint32_t {
  avx2 = 1,              // AVX2, FMA, F16C and BMI2
  avx_vnni = 2,          // 8-bit dot products on 256-bit vectors (AVX-VNNI)
  avx512 = 4,            // AVX-512 F, BW, DQ, VL and CD
  avx512_vnni = 8,       // 8-bit dot products on 512-bit vectors
  avx512_vbmi = 16,      // byte permutations
  avx512_bf16 = 32,      // dot products of bfloat16 pairs
  amx_int8 = 64,         // products of 8-bit tiles; the kernel has given permission to use tiles
  amx_bf16 = 128,        // AMX tiles of bfloat16
  neon = 256,            // Arm's vectors of 128 bits, which every aarch64 has
  dotprod = 512,         // 8-bit dot products (FEAT_DotProd)
  i8mm = 1024,           // products of 8-bit matrices (FEAT_I8MM)
  arm_bf16 = 2048,       // dot products of bfloat16 pairs (FEAT_BF16)
  avx_vnni_int8 = 4096,  // the dot products of avx_vnni for signed bytes too (AVX-VNNI-INT8); only if named
};

// A set of features. Each kernel family takes its best version for the features in the set.
//
// It is named by a level and how it differs from it: "ref" (none), "avx2", "avx512" (with VNNI, VBMI and BF16), "amx"
// (all of avx512 and both kinds of tiles); "avx2+vnni" adds AVX-VNNI, "avx512-bf16" is what Ice Lake has,
// "avx512-vnni-vbmi-bf16" Skylake. On Arm: "ref", "neon", and "neon+dotprod+i8mm+bf16" with what it adds.
class Isa {
 public:
  static const Isa ref, avx2, avx512, amx, neon;

  constexpr Isa() = default;
  constexpr explicit Isa(uint32_t bits) : bits_(bits) {}

  constexpr bool has(Feature feature) const { return (bits_ & static_cast<uint32_t>(feature)) != 0; }
  constexpr bool includes(Isa other) const { return (bits_ & other.bits_) == other.bits_; }
  constexpr Isa with(Feature feature) const { return Isa(bits_ | static_cast<uint32_t>(feature)); }
  constexpr Isa without(Feature feature) const { return Isa(bits_ & ~static_cast<uint32_t>(feature)); }
  constexpr uint32_t bits() const { return bits_; }
  friend constexpr bool operator==(Isa, Isa) = default;

 private:
  uint32_t bits_ = 0;
};

inline constexpr Isa Isa::ref{};
inline constexpr Isa Isa::avx2 = Isa().with(Feature::avx2);
inline constexpr Isa Isa::avx512 =
    Isa::avx2.with(Feature::avx512).with(Feature::avx512_vnni).with(Feature::avx512_vbmi).with(Feature::avx512_bf16);
inline constexpr Isa Isa::amx = Isa::avx512.with(Feature::amx_int8).with(Feature::amx_bf16);
inline constexpr Isa Isa::neon = Isa().with(Feature::neon);

std::string isa_name(Isa isa);
std::string_view feature_name(Feature feature);  // "avx512_bf16"

// Errors (user): not a level, or not one of the level's features.
Result<Isa> parse_isa(const std::string& name);

// Every feature of this machine. The first call asks the kernel for permission to use AMX tiles, which holds for the
// process from then on; without it AMX counts as absent.
Isa detect_isa();

// Why the tiles that this processor has are not used: "" if they are, or if it has none.
const std::string& amx_refusal();

// detect_isa(), or the set that the environment variable MILLRACE_ISA names.
// Errors (user): an unknown name, or a feature that this machine lacks.
Result<Isa> select_isa();

// ref, avx2 or neon, and detect_isa(), as far as they differ and this machine has them.
std::vector<Isa> isa_levels();

// isa_levels() and the sets between them for which some kernel family has a separate version.
std::vector<Isa> isa_variants();

// Processors this process may run on (affinity mask), at least 1.
int available_cores();

}  // namespace millrace
