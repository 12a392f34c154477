// Writes tokenizers: a TokenizerSpec as tokenizer.ggml.* keys, or as the files of a Hugging Face folder. If a file kind
// cannot express something that changes ids, the result is Error::unsupported; differences that affect only decoding or
// rare text are added to `notes`. Stateless.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "loader/gguf_writer.h"
#include "loader/model_files.h"
#include "text/tokenizer.h"

namespace millrace {

// Sets the tokenizer's keys. `vocab` is the number of embedding rows: ids without a token become unused tokens.
Result<void> write_gguf_tokenizer(const TokenizerSpec& spec, int64_t vocab, GgufWriter& writer,
                                  std::vector<std::string>& notes);

struct TextFile {
  std::string name;
  std::string content;
};

// tokenizer.json or tokenizer.model, and tokenizer_config.json with the chat templates of `model`. SentencePiece
// vocabularies with scores are written as tokenizer.model, the others as tokenizer.json.
Result<std::vector<TextFile>> write_huggingface_tokenizer(const TokenizerSpec& spec, const ModelFiles& model,
                                                          int64_t context);

// Its parts.
std::string write_sentencepiece_model(const TokenizerSpec& spec);
Result<std::string> write_tokenizer_json(const TokenizerSpec& spec);

}  // namespace millrace
