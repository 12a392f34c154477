// Instruction sets and number of cores of this processor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

// Instructions that a kernel may need beyond the baseline. A feature counts as present only if the operating system
// saves its registers.
enum class Feature : uint32_t {
  avx2 = 1,              // AVX2, FMA, F16C and BMI2
  avx_vnni = 2,          // 8-bit dot products on 256-bit vectors (AVX-VNNI)
  avx512 = 4,            // AVX-512 F, BW, DQ, VL and CD
  avx512_vnni = 8,       // 8-bit dot products on 512-bit vectors
  avx512_vbmi = 16,      // byte permutations
  avx512_bf16 = 32,      // dot products of bfloat16 pairs
  amx_int8 = 64,         // AMX tiles of 8-bit integers; requires the system's permission
  amx_bf16 = 128,        // AMX tiles of bfloat16
  neon = 256,            // Arm's vectors of 128 bits, which every aarch64 has
  dotprod = 512,         // 8-bit dot products (FEAT_DotProd)
  i8mm = 1024,           // products of 8-bit matrices (FEAT_I8MM)
  arm_bf16 = 2048,       // dot products of bfloat16 pairs (FEAT_BF16)
  avx_vnni_int8 = 4096,  // like avx_vnni, also for two signed operands (AVX-VNNI-INT8); only if named
};

// A set of features. Each kernel family uses its best version for the features in the set.
//
// The name of a set is a level, followed by the features that are added to or removed from the level. Levels are "ref"
// (no features), "avx2", "avx512" (with VNNI, VBMI and BF16), "amx" (avx512 and both kinds of tiles), and "neon" on
// Arm. For example, "avx2+vnni" adds AVX-VNNI; "avx512-bf16" is Ice Lake's set and "avx512-vnni-vbmi-bf16" Skylake's;
// "neon+dotprod+i8mm+bf16" adds three features.
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

// Errors: user (an unknown level, or a feature that cannot be added to or removed from the level).
Result<Isa> parse_isa(const std::string& name);

// Returns all features of this machine. The first call asks the system for permission to use AMX tiles, which then
// holds for the process. Without permission, AMX counts as absent.
Isa detect_isa();

// Returns the reason why this processor's tiles are not used; "" if they are used or the processor has none.
const std::string& amx_refusal();

// Returns the set that the environment variable MILLRACE_ISA names, or else detect_isa(). Errors: user (an unknown
// name, or a feature that this machine lacks).
Result<Isa> select_isa();

// Returns the distinct sets among ref, avx2, neon and detect_isa() that this machine has.
std::vector<Isa> isa_levels();

// Returns isa_levels() and the sets between them for which some kernel family has a separate version.
std::vector<Isa> isa_variants();

// Returns the number of processors this process may run on (affinity mask), at least 1.
int available_cores();

}  // namespace millrace
