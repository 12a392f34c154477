// Reads tokenizer.bin of llama2.c: int32 max_token_length, then per token float32 score, int32 length, bytes;
// little-endian. The file has no token types, so they are derived from the text:
//
//   <unk>  \n<s>\n  \n</s>\n      unknown, BOS and EOS; also without the newlines around them
//   <0x41>                       a byte. Exporters of 2023 wrote the character U+0041 instead, for all 256 at ids 3
//                                to 258
//   anything else                a piece; U+2581 was replaced by a space
#include <fmt/format.h>

#include <bit>

#include "text/tokenizer_files.h"
#include "text/tokenizers/base_tokenizer.h"
#include "text/unicode.h"

namespace millrace {
namespace {

constexpr int32_t kMaxTokenBytes = 1 << 16;
constexpr size_t kFirstByte = 3;  // first id of the bytes that are written as characters

uint32_t little_endian(std::string_view p) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<uint8_t>(p[i])} << (8 * i);
  return value;
}

bool bytes_are_characters(const std::vector<std::string>& tokens) {
  if (tokens.size() < kFirstByte + 256) return false;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    std::string character;
    append_utf8(character, byte);
    if (tokens[kFirstByte + byte] != character) return false;
  }
  return true;
}

// `text` in the spelling of SentencePiece vocabularies.
std::string with_marks(std::string text) {
  replace_all(text, " ", "\xE2\x96\x81");  // U+2581
  return text;
}

// llama2.c stores BOS as "\n<s>\n" so that it prints on its own line; normalize it to the usual name.
std::string_view without_line_ends(std::string_view text) {
  return text.size() > 2 && text.front() == '\n' && text.back() == '\n' ? text.substr(1, text.size() - 2) : text;
}

void set_types(TokenizerSpec& spec) {
  spec.types.assign(spec.tokens.size(), TokenType::normal);
  const auto name = [&spec](std::optional<TokenId>& id, size_t i, std::string_view text, TokenType type) {
    if (id || without_line_ends(spec.tokens[i]) != text) return false;
    id = static_cast<TokenId>(i);
    spec.tokens[i] = text;
    spec.types[i] = type;
    return true;
  };
  const bool characters = bytes_are_characters(spec.tokens);
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (characters && i >= kFirstByte && i < kFirstByte + 256)
      spec.tokens[i] = fmt::format("<0x{:02X}>", i - kFirstByte);
    if (name(spec.unk, i, "<unk>", TokenType::unknown) || name(spec.bos, i, "<s>", TokenType::control) ||
        name(spec.eos, i, "</s>", TokenType::control))
      continue;
    if (byte_token_value(spec.tokens[i]) >= 0)
      spec.types[i] = TokenType::byte;
    else
      spec.tokens[i] = with_marks(std::move(spec.tokens[i]));
  }
}

// Otherwise characters would be dropped silently.
Result<void> check_everything_can_be_written(const TokenizerSpec& spec) {
  if (spec.unk) return {};
  std::vector<bool> seen(256);
  for (size_t i = 0; i < spec.tokens.size(); ++i)
    if (spec.types[i] == TokenType::byte) seen[static_cast<size_t>(byte_token_value(spec.tokens[i]))] = true;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (!seen[byte])
      return Error::corrupt(fmt::format(
          "tokenizer.bin: has no <unk> and no token <0x{:02X}>, so that some texts cannot be encoded; export it again",
          byte));
  }
  return {};
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
  set_types(spec);
  MILLRACE_TRY_VOID(check_everything_can_be_written(spec));
  spec.add_bos = spec.bos.has_value();
  infer_end_of_generation(spec);
  return spec;
}

}  // namespace millrace
