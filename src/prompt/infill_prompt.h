// Builds prompts for fill in the middle (Bavarian et al., 2022, arXiv:2207.14255), with which a model trained for it
// writes the text between two given texts. Other files precede these texts, as in repository-level training
// (Qwen2.5-Coder, arXiv:2409.12186).
//
//   [bos] [repo] [file] NAME TEXT ... [file] NAME   [prefix] BEFORE [suffix] AFTER [middle]
//
// If the model has no token for files, plain text separates the files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "millrace/model.h"
#include "text/tokenizer.h"

namespace millrace {

struct InfillTokens {
  TokenId prefix = 0, suffix = 0, middle = 0;
  std::optional<TokenId> repository, file;
};

// Finds the tokens in the model file's metadata (GGUF), or by the names that known models use. Errors: unsupported (not
// found).
Result<InfillTokens> find_infill_tokens(const TokenizerSpec& spec);

struct InfillFile {
  std::string name, text;
};

struct InfillText {
  std::string suffix;             // the text after the middle
  std::string begun;              // the beginning of the middle, if already written
  std::vector<InfillFile> files;  // other files, as context
};

struct InfillPrompt {
  std::vector<TokenId> tokens;
  int64_t dropped_tokens = 0;  // number of tokens cut from the beginning of the other files so that the prompt fits
};

// `before`: the tokens before the middle, without a start token. Only the other files are cut so that the prompt has at
// most `most_tokens` tokens. Errors: unsupported (the model has no infill tokens).
Result<InfillPrompt> infill_prompt(const LanguageModel& model, const std::vector<TokenId>& before,
                                   const InfillText& text, int64_t most_tokens);

}  // namespace millrace
