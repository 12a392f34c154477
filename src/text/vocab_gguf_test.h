// A minimal GGUF reader for the vocabulary-only files of the tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "text/tokenizer_files.h"

namespace millrace::testing {

class VocabGguf {
 public:
  explicit VocabGguf(std::string bytes) : bytes_(std::move(bytes)) {}

  TokenizerSpec read() {
    TokenizerSpec spec;
    pos_ = 16;  // magic, version, tensor count
    const auto pairs = take<uint64_t>();
    for (uint64_t i = 0; i < pairs; ++i) {
      const std::string key = string();
      read_value(key, take<uint32_t>(), spec);
    }
    if (spec.kind == "wordpiece") spec.bos = spec.cls;
    infer_end_of_generation(spec);
    return spec;
  }

 private:
  template <typename T>
  T take() {
    T value{};
    std::memcpy(&value, bytes_.data() + pos_, sizeof value);
    pos_ += sizeof value;
    return value;
  }
  std::string string() {
    const auto size = take<uint64_t>();
    pos_ += size;
    return bytes_.substr(pos_ - size, size);
  }
  static size_t width(uint32_t type) {
    constexpr size_t kWidths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return kWidths[type];
  }
  void read_array(const std::string& key, TokenizerSpec& spec) {
    const auto type = take<uint32_t>();
    const auto count = take<uint64_t>();
    for (uint64_t i = 0; i < count; ++i) {
      if (type == 8) {
        std::string text = string();
        if (key == "tokenizer.ggml.tokens")
          spec.tokens.push_back(std::move(text));
        else if (key == "tokenizer.ggml.merges")
          spec.merges.push_back(std::move(text));
      } else if (key == "tokenizer.ggml.scores") {
        spec.scores.push_back(take<float>());
      } else if (key == "tokenizer.ggml.token_type") {
        spec.types.push_back(static_cast<TokenType>(take<int32_t>()));
      } else {
        pos_ += width(type);
      }
    }
  }
  void read_value(const std::string& key, uint32_t type, TokenizerSpec& spec) {
    if (type == 9) return read_array(key, spec);
    if (type == 8) {
      const std::string text = string();
      if (key == "tokenizer.ggml.pre") spec.pre = text;
      if (key == "tokenizer.ggml.model") {
        spec.kind = text == "gpt2" ? "bpe" : text == "llama" ? "spm" : text == "t5" ? "unigram" : "wordpiece";
      }
      return;
    }
    if (type == 7) {
      const bool value = take<uint8_t>() != 0;
      if (key == "tokenizer.ggml.add_bos_token") spec.add_bos = value;
      if (key == "tokenizer.ggml.add_eos_token") spec.add_eos = value;
      return;
    }
    if (type == 4) {
      const auto value = static_cast<TokenId>(take<uint32_t>());
      if (key == "tokenizer.ggml.bos_token_id") spec.bos = value;
      if (key == "tokenizer.ggml.eos_token_id") spec.eos = value;
      if (key == "tokenizer.ggml.unknown_token_id") spec.unk = value;
      if (key == "tokenizer.ggml.cls_token_id") spec.cls = value;
      if (key == "tokenizer.ggml.seperator_token_id") spec.sep = value;
      return;
    }
    pos_ += width(type);
  }

  std::string bytes_;
  size_t pos_ = 0;
};

}  // namespace millrace::testing
