// The way back for tokenizers: a TokenizerSpec as tokenizer.ggml.* keys, or as the files of a Hugging Face folder.
// Where a file kind cannot say something that changes ids, it is Error::unsupported; what only decoding or rare text
// would notice goes into `notes`. Stateless.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "loader/gguf_writer.h"
#include "loader/model_files.h"
#include "text/tokenizer.h"

namespace millrace {

// Sets the tokenizer's keys. `vocab` is the number of embedding rows: ids that no token has become unused ones.
Result<void> write_gguf_tokenizer(const TokenizerSpec& spec, int64_t vocab, GgufWriter& writer,
                                  std::vector<std::string>& notes);

struct TextFile {
  std::string name;
  std::string content;
};

// tokenizer.json or tokenizer.model, and tokenizer_config.json with the chat templates of `model`.
// SentencePiece vocabularies with scores go into tokenizer.model, whose rules are theirs; the others into
// tokenizer.json.
Result<std::vector<TextFile>> write_huggingface_tokenizer(const TokenizerSpec& spec, const ModelFiles& model,
                                                          int64_t context);

// The parts of it.
std::string write_sentencepiece_model(const TokenizerSpec& spec);
Result<std::string> write_tokenizer_json(const TokenizerSpec& spec);

}  // namespace millrace
