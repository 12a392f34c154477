// tokenizer.bin of llama2.c -> TokenizerSpec: int32 max_token_length, then per token float32 score, int32 length,
// bytes; little-endian. Ids 0, 1, 2 are unk, BOS, EOS, ids 3..258 the bytes; spaces are written as spaces.
#include <fmt/format.h>

#include <bit>

#include "text/tokenizer_files.h"

namespace millrace {
namespace {

constexpr int32_t kMaxTokenBytes = 1 << 16;
constexpr size_t kFirstByte = 3;  // frozen: llama2.c's decoder and encoder add 3 to a byte

uint32_t little_endian(std::string_view p) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<uint8_t>(p[i])} << (8 * i);
  return value;
}

}  // namespace

Result<TokenizerSpec> read_llama2c_tokenizer(std::string_view bytes, int32_t vocab_size) {
  if (vocab_size < 0) return Error::corrupt(fmt::format("tokenizer.bin: vocabulary size is negative: {}", vocab_size));
  if (bytes.size() < 4) return Error::corrupt(fmt::format("tokenizer.bin: too short: {} bytes", bytes.size()));
  TokenizerSpec spec;
  spec.kind = "spm";
  spec.space_prefix = SpacePrefix::first;
  size_t pos = 4;
  while (vocab_size == 0 ? pos < bytes.size() : spec.tokens.size() < static_cast<size_t>(vocab_size)) {
    if (bytes.size() - pos < 8) {
      return Error::corrupt(
          fmt::format("tokenizer.bin: cut off at offset {}, after {} tokens", pos, spec.tokens.size()));
    }
    const float score = std::bit_cast<float>(little_endian(bytes.substr(pos, 4)));
    const auto length = static_cast<int32_t>(little_endian(bytes.substr(pos + 4, 4)));
    pos += 8;
    if (length < 0 || length > kMaxTokenBytes || static_cast<size_t>(length) > bytes.size() - pos) {
      return Error::corrupt(fmt::format("tokenizer.bin: length of token {} is out of range at offset {}: {}",
                                        spec.tokens.size(), pos - 4, length));
    }
    spec.tokens.emplace_back(bytes.substr(pos, static_cast<size_t>(length)));
    spec.scores.push_back(score);
    pos += static_cast<size_t>(length);
  }
  spec.types.assign(spec.tokens.size(), TokenType::normal);
  if (spec.tokens.size() < kFirstByte + 256) {
    return Error::corrupt(
        fmt::format("tokenizer.bin: no room for the byte tokens: {} tokens, at least 259", spec.tokens.size()));
  }
  // llama2.c writes BOS as "\n<s>\n" so that it prints on a line of its own; the names are the usual ones.
  spec.tokens[0] = "<unk>";
  spec.tokens[1] = "<s>";
  spec.tokens[2] = "</s>";
  spec.types[0] = TokenType::unknown;
  spec.types[1] = spec.types[2] = TokenType::control;
  for (size_t byte = 0; byte < 256; ++byte) {
    spec.tokens[kFirstByte + byte] = fmt::format("<0x{:02X}>", byte);
    spec.types[kFirstByte + byte] = TokenType::byte;
  }
  for (size_t i = kFirstByte + 256; i < spec.tokens.size(); ++i) {
    std::string marked;
    for (char c : spec.tokens[i]) {
      if (c == ' ')
        marked += "\xE2\x96\x81";  // U+2581, as every other SentencePiece vocabulary spells it
      else
        marked += c;
    }
    spec.tokens[i] = std::move(marked);
  }
  spec.unk = 0;
  spec.bos = 1;
  spec.eos = 2;
  spec.add_bos = true;
  infer_end_of_generation(spec);
  return spec;
}

}  // namespace millrace
