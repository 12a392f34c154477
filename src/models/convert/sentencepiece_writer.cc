// TokenizerSpec -> tokenizer.model, SentencePiece's protobuf (text/files/sentencepiece_model.cc lists the fields).
#include <bit>

#include "models/convert/tokenizer_writer.h"

namespace millrace {
namespace {

// A protobuf message under construction.
class Message {
 public:
  void number(uint32_t field, uint64_t value) {
    varint(field << 3);
    varint(value);
  }
  void real(uint32_t field, float value) {
    varint(field << 3 | 5);
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes_ += static_cast<char>(bits >> shift & 0xFF);
  }
  void text(uint32_t field, std::string_view value) {
    varint(field << 3 | 2);
    varint(value.size());
    bytes_ += value;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(0x80 | (value & 0x7F));
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

uint64_t id_or_none(const std::optional<TokenId>& id) {  // negative numbers are written as 64 bits
  return id ? static_cast<uint64_t>(*id) : static_cast<uint64_t>(int64_t{-1});
}

}  // namespace

std::string write_sentencepiece_model(const TokenizerSpec& spec) {
  Message model;
  bool bytes = false;
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const TokenType type = i < spec.types.size() ? spec.types[i] : TokenType::normal;
    bytes |= type == TokenType::byte;
    Message piece;
    piece.text(1, spec.tokens[i]);
    piece.real(2, i < spec.scores.size() ? spec.scores[i] : -static_cast<float>(i));
    if (type != TokenType::normal) piece.number(3, static_cast<uint64_t>(type));
    model.text(1, piece.bytes());
  }
  Message trainer;
  trainer.number(3, spec.kind == "unigram" ? 1 : 2);
  trainer.number(4, spec.tokens.size());
  if (spec.whitespace_suffix) trainer.number(24, 1);
  trainer.number(35, spec.byte_fallback && bytes ? 1 : 0);
  trainer.number(40, id_or_none(spec.unk));
  trainer.number(41, id_or_none(spec.bos));
  trainer.number(42, id_or_none(spec.eos));
  trainer.number(43, id_or_none(spec.pad));
  if (!spec.unk_surface.empty()) trainer.text(44, spec.unk_surface);
  model.text(2, trainer.bytes());
  Message normalizer;
  normalizer.text(1, spec.precompiled_charsmap.empty() ? "identity" : "nmt_nfkc");
  if (!spec.precompiled_charsmap.empty())
    normalizer.text(
        2, {reinterpret_cast<const char*>(spec.precompiled_charsmap.data()), spec.precompiled_charsmap.size()});
  normalizer.number(3, spec.add_space_prefix);
  normalizer.number(4, spec.remove_extra_whitespaces);
  normalizer.number(5, spec.escape_whitespaces);
  model.text(3, normalizer.bytes());
  return model.bytes();
}

}  // namespace millrace
