#include "models/arch/builtin.h"

namespace millrace {

const Registry<const Arch*>& archs() {
  static const Registry<const Arch*> registry(
      "arch", {.loss = Loss::lossless, .test = "tests/golden/golden_test.cc"},
      {&kLlama,     &kMistral,   &kMixtral,  &kQwen2,          &kQwen3,        &kQwen2Moe, &kQwen3Moe,
       &kGemma,     &kGemma2,    &kGemma3,   &kPhi3,           &kGpt2,         &kOlmo2,    &kSmolLm3,
       &kInternLm2, &kGptOss,    &kMamba,    &kDeepseek2,      &kDeepseek3,    &kFalconH1, &kQwen3Next,
       &kQwen35,    &kQwen35Moe, &kGemma3n,  &kGemma4,         &kBert,         &kRoberta,  &kModernBert,
       &kNomicBert, &kJinaBert2, &kEuroBert, &kGemmaEmbedding, &kNomicBertMoe, &kJinaBert3});
  return registry;
}

}  // namespace millrace
