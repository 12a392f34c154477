// How hidden states become a vector or scores: the keys of an encoder's GGUF file, and the files of a folder.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/convert/conversion.h"

namespace millrace {

// Files and folders of sentence-transformers next to the weights.
inline constexpr const char* kEmbeddingFiles[] = {"modules.json",
                                                  "sentence_bert_config.json",
                                                  "config_sentence_transformers.json",
                                                  "1_Pooling",
                                                  "2_Dense",
                                                  "3_Dense",
                                                  "2_Normalize",
                                                  "4_Normalize"};

// Adds the keys to `keys`, with `prefix` before their names, and notes what is lost. Errors: unsupported (a property of
// the folder that has no key).
Result<void> add_encoder_keys(const ConversionInput& input, const std::string& prefix, nlohmann::ordered_json& keys,
                              ConvertReport& report);

}  // namespace millrace
