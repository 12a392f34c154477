// PromptCompressor: selects the tokens of a prompt that remain, before the engine receives the prompt. Each compressor
// is one file under compressors/ and one line in builtin.cc. Immutable; several threads may use one object at once.
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

// Data that a compressor needs in addition to the tokens. It is computed only on request.
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
  // Returns the file of the model that computes the compressor's scores; "": the model that answers.
  virtual std::string model() const { return ""; }
  // Returns the indices of the tokens that remain, ascending, including every fixed token. Their number is at most
  // `budget`, unless there are more fixed tokens. `scores`: if the compressor needs self-information, -log p(token |
  // tokens before) in nats for each token, infinite for the first; else empty. The result must depend on the arguments
  // alone.
  virtual std::vector<int64_t> keep(const PromptView& prompt, std::span<const float> scores, int64_t budget) const = 0;
};

using PromptCompressorFactory = Result<std::unique_ptr<PromptCompressor>> (*)(const OptionValues& options);
const Registry<PromptCompressorFactory>& prompt_compressors();

// `text` is NAME[:key=value,...]. Errors (user): unknown name or option.
Result<std::unique_ptr<PromptCompressor>> make_prompt_compressor(std::string_view text);

}  // namespace millrace
