#include "models/arch/builtin.h"

#include <array>

namespace millrace {
namespace {
const std::array<const Arch*, 14> kArchs = {&kLlama, &kMistral, &kMixtral, &kQwen2, &kQwen3, &kQwen2Moe, &kQwen3Moe,
                                            &kGemma, &kGemma2,  &kGemma3,  &kPhi3,  &kGpt2,  &kOlmo2,    &kSmolLm3};
}

std::span<const Arch* const> archs() { return kArchs; }

}  // namespace millrace
