// PromptCompressor: selects which tokens of a prompt remain, before the engine sees it. One file each under
// compressors/ and one line in builtin.cc. Immutable, so one may be used by several threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/registry.h"
#include "millrace/token.h"

namespace millrace {

// Data that a compressor reads in addition to the tokens; computed only if it needs it.
enum PromptNeeds : uint32_t { kPromptNeedsNothing = 0, kNeedsSelfInformation = 1 };

// A prompt as parallel arrays, one entry a token.
struct PromptView {
  std::span<const TokenId> tokens;
  std::span<const std::string> texts;  // the bytes of each token
  std::span<const char> fixed;         // 1: must remain (control tokens, the chat template's text)
};

class PromptCompressor {
 public:
  virtual ~PromptCompressor() = default;

  virtual PromptNeeds needs() const { return kPromptNeedsNothing; }
  // The file of the model that computes the compressor's scores; "": the model that answers.
  virtual std::string model() const { return ""; }
  // Returns the indices of the tokens that remain, ascending, with every fixed one. They are at most `budget`, unless
  // more tokens than that must remain. `scores`: if the compressor needs self-information, a value for each token, -log
  // p(token | tokens before), in nats, infinite where there is no token before. The result must depend on the arguments
  // alone.
  virtual std::vector<int64_t> keep(const PromptView& prompt, std::span<const float> scores, int64_t budget) const = 0;
};

using PromptCompressorFactory = Result<std::unique_ptr<PromptCompressor>> (*)(const OptionValues& options);
const Registry<PromptCompressorFactory>& prompt_compressors();

// `text` is NAME[:key=value,...]. Errors (user): unknown name or option.
Result<std::unique_ptr<PromptCompressor>> make_prompt_compressor(std::string_view text);

}  // namespace millrace
