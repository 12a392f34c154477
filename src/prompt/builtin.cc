// The built-in prompt compressors, and how one is made from text.
#include "base/choose.h"
#include "prompt/compressors/factories.h"

namespace millrace {
namespace {

using Type = OptionSpec::Type;

}  // namespace

const Registry<PromptCompressorFactory>& prompt_compressors() {
  static const Registry<PromptCompressorFactory> registry(
      {.loss = Loss::lossy, .test = "src/prompt/selective_context_test.cc", .proof = "docs/prompt-compression.md"},
      {
          {{"prompt",
            "selective_context",
            "drops the words that the model could have predicted best; answers change",
            "Li et al., 2023, Compressing Context to Enhance Inference Efficiency of Large Language Models",
            {{"ratio", Type::number, "0.5", 0, 0.99,
              "share of the units to drop, those with the least self-information"},
             {"unit", Type::text, "word", 0, 0, "what is dropped as a whole: token, word or sentence"},
             {"keep_last", Type::integer, "32", 0, 1e9, "tokens at the end that are never dropped"},
             {"tokens", Type::integer, "0", 0, 1e9, "most tokens that may remain; 0: no limit"},
             {"model", Type::text, "", 0, 0,
              "file of the model that scores the text; default: the model that answers"}}},
           make_selective_context},
      });
  return registry;
}

Result<std::unique_ptr<PromptCompressor>> make_prompt_compressor(std::string_view text) {
  MILLRACE_TRY(const auto chosen, choose_member("prompt", prompt_compressors(), text));
  auto made = chosen.member(chosen.options);
  if (!made.ok()) return Error::user(chosen.label + ": " + made.error().message);
  return made;
}

}  // namespace millrace
