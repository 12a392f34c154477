#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "text/unicode.h"

namespace millrace {
namespace {

std::string all_at_once(std::string_view bytes) {
  Utf8Stream stream;
  std::string out = stream.push(bytes);
  return out + stream.flush();
}

TEST(Utf8Stream, HoldsBackExactlyTheIncompleteCharacter) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xF0\x9F"), "a");
  EXPECT_EQ(stream.held_bytes(), 2u);
  EXPECT_EQ(stream.push("\x98"), "");
  EXPECT_EQ(stream.push("\x80z"), "\xF0\x9F\x98\x80z");
  EXPECT_EQ(stream.flush(), "");
}

TEST(Utf8Stream, InvalidBytesAreReplacedImmediately) {
  EXPECT_EQ(all_at_once("\xFF"), "\xEF\xBF\xBD");
  EXPECT_EQ(all_at_once("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD");                  // overlong
  EXPECT_EQ(all_at_once("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // surrogate
  EXPECT_EQ(all_at_once("\xE2\x82"
                        "A"),
            "\xEF\xBF\xBD"
            "A");  // one maximal part
  EXPECT_EQ(all_at_once("\xF0\x9F\x98"), "\xEF\xBF\xBD");
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xF4\x90"), "\xEF\xBF\xBD\xEF\xBF\xBD");  // above U+10FFFF: invalid at once
}

TEST(Utf8Stream, AnyChunkingGivesTheSameValidText) {
  std::mt19937 rng(3);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    for (size_t n = rng() % 12; n > 0; --n) {
      if (rng() % 2)
        append_utf8(bytes, rng() % 3 ? 0x1F600 + rng() % 64 : 0x80 + rng() % 0x700);
      else
        bytes += static_cast<char>(rng() % 4 ? 0x80 + rng() % 128 : rng());
    }
    const std::string whole = all_at_once(bytes);
    ASSERT_TRUE(is_valid_utf8(whole));
    if (is_valid_utf8(bytes)) {
      ASSERT_EQ(whole, bytes);
    }
    Utf8Stream stream;
    std::string pieces;
    for (size_t pos = 0; pos < bytes.size();) {
      const size_t size = 1 + rng() % 3;
      const std::string piece = stream.push(std::string_view(bytes).substr(pos, size));
      ASSERT_TRUE(is_valid_utf8(piece));
      pieces += piece;
      pos += size;
    }
    ASSERT_EQ(pieces + stream.flush(), whole) << spell_bytes(bytes);
  }
}

// 256 byte tokens and two special ones.
std::unique_ptr<Tokenizer> byte_tokenizer() {
  TokenizerSpec spec;
  spec.kind = "spm";
  spec.tokens = {"<unk>", "<s>", "<tool>"};
  spec.types = {TokenType::unknown, TokenType::control, TokenType::user_defined};
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    spec.tokens.emplace_back(text);
    spec.types.push_back(TokenType::byte);
  }
  spec.bos = 1;
  spec.unk = 0;
  return std::move(Tokenizer::create(std::move(spec))).value();
}

TEST(Detokenizer, StreamEqualsDecodeForValidText) {
  const auto tokenizer = byte_tokenizer();
  const std::string text = "na\xC3\xAFve \xF0\x9F\x98\x80<tool>x";
  const auto ids = tokenizer->encode(text);
  Detokenizer stream(*tokenizer, {.skip_special = true, .at_start = true});
  std::string out;
  for (TokenId id : ids) {
    const std::string piece = stream.push(id);
    EXPECT_TRUE(is_valid_utf8(piece));
    out += piece;
  }
  out += stream.flush();
  EXPECT_EQ(tokenizer->decode(ids, true), text);
  // The stream keeps the space that this vocabulary adds after a special token, because it cannot tell that it was
  // added.
  EXPECT_EQ(out, "na\xC3\xAFve \xF0\x9F\x98\x80<tool> x");
}

TEST(Detokenizer, ControlTokensAndBadIds) {
  const auto tokenizer = byte_tokenizer();
  Detokenizer hidden(*tokenizer);
  EXPECT_EQ(hidden.push(1), "");
  EXPECT_EQ(hidden.push(2), "<tool>");
  EXPECT_EQ(hidden.push(-1), "");
  EXPECT_EQ(hidden.push(1 << 30), "");
  Detokenizer shown(*tokenizer, {.skip_special = false});
  EXPECT_EQ(shown.push(1), "<s>");
}

}  // namespace
}  // namespace millrace
