// The key-value section of a GGUF file (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
//
//   key:    u64 length, bytes
//   type:   u32
//   value:  a number | u64 length, bytes | u32 element type, u64 count, elements (arrays may nest)
//
// All keys are stored in one flat JSON object, except the tokenizer's arrays, which are as long as the vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "loader/byte_reader.h"

namespace millrace {

struct GgufMetadata {
  std::shared_ptr<nlohmann::ordered_json> values;  // every key except the arrays below; strings are valid UTF-8
  std::vector<std::string> tokens;                 // tokenizer.ggml.tokens
  std::vector<float> scores;                       // tokenizer.ggml.scores
  std::vector<int32_t> token_types;                // tokenizer.ggml.token_type
  std::vector<std::string> merges;                 // tokenizer.ggml.merges
  std::vector<uint8_t> charsmap;                   // tokenizer.ggml.precompiled_charsmap

  bool has(std::string_view key) const;  // true: `values` contains the key
  // Typed look-ups. They return nullopt if the key is missing or its value has another type.
  std::optional<uint64_t> unsigned_value(std::string_view key) const;
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
};

// Reads `count` entries from `reader`. `file` is used in messages.
Result<GgufMetadata> read_gguf_metadata(ByteReader& reader, uint64_t count, const std::string& file);

}  // namespace millrace
