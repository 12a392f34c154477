// LanguageModel: weights, tokenizer and chat template of one model, immutable and shared by engines.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/options.h"
#include "millrace/result.h"
#include "millrace/token.h"

namespace millrace {

struct ModelInfo {
  std::string name;          // general.name, or the name of the file or folder
  std::string architecture;  // "llama"
  int64_t parameters = 0;
  int64_t weight_bytes = 0;  // as stored in memory
  int64_t step_bytes = 0;    // bytes of weights read by one decode step of one stream
  int64_t context = 0;       // trained length, tokens
  int64_t vocab = 0;
};

class LanguageModel {
 public:
  // `path`: a GGUF file, a .safetensors file, a Hugging Face folder, or the name of a model built into the binary, such
  // as "stories" or "stories-draft"; "": the default built-in model.
  // Errors: corrupt (exit code 3), unsupported (4), resource (5), user (2).
  static Result<std::shared_ptr<const LanguageModel>> load(const std::string& path, const LoadOptions& options = {});
  ~LanguageModel();

  const ModelInfo& info() const;

  // Errors: unsupported (the files contain no tokenizer).
  Result<std::vector<TokenId>> encode(std::string_view text, bool add_special = true, bool parse_special = true) const;
  std::string decode(const std::vector<TokenId>& tokens, bool skip_special = true) const;

  // Returns the token's row of the embedding table, at the scale of PromptEmbeddings::rows. Errors: user (`token` is
  // outside the vocabulary).
  Result<std::vector<float>> embedding(TokenId token) const;

  // Renders the messages with the model's own template, or with ChatML if it has none. `messages_json`: a JSON array of
  // {"role", "content"} objects, or an object with "messages" and further template variables.
  Result<std::string> apply_chat_template(std::string_view messages_json, bool add_generation_prompt = true) const;

  struct Parts;  // src/run/language_model.h
  const Parts& parts() const { return *parts_; }

 private:
  LanguageModel();
  std::unique_ptr<Parts> parts_;
};

}  // namespace millrace
