// Normalization of long runs of combining marks, against utf8proc's own, and the bounds on Replace normalizers.
#include "text/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>

#include "text/tokenizer.h"

namespace millrace {
namespace {

std::string repeated(const std::string& text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

std::string by_utf8proc(const std::string& text, int options) {
  utf8proc_uint8_t* mapped = nullptr;
  const auto size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &mapped, static_cast<utf8proc_option_t>(options | UTF8PROC_STABLE));
  std::string out(reinterpret_cast<char*>(mapped), static_cast<size_t>(std::max<utf8proc_ssize_t>(size, 0)));
  std::free(mapped);
  return out;
}

TEST(NormalizeUnicode, AgreesWithUtf8procOnDrawnTexts) {
  // Starters, marks of several classes, marks that decompose, Hangul letters, and a ligature with 18 parts.
  constexpr uint32_t kLetters[] = {'a',    'e',    ' ',    0xE9,   0x1EC7, 0x301,  0x323,  0x327,
                                   0x344,  0x345,  0xF71,  0xF72,  0xF73,  0xF81,  0x1100, 0x1161,
                                   0x11A8, 0xAC00, 0xFB01, 0xFDFA, 0x2126, 0x212B, 0x958,  0x1D15E};
  uint32_t random = 7;
  for (int repeat = 0; repeat < 2000; ++repeat) {
    std::string text;
    for (int i = 0; i < 24; ++i) {
      random = random * 1664525 + 1013904223;
      append_utf8(text, kLetters[(random >> 16) % std::size(kLetters)]);
    }
    EXPECT_EQ(normalize_unicode(text, NormalForm::nfc), by_utf8proc(text, UTF8PROC_COMPOSE));
    EXPECT_EQ(normalize_unicode(text, NormalForm::nfd), by_utf8proc(text, UTF8PROC_DECOMPOSE));
    EXPECT_EQ(normalize_unicode(text, NormalForm::nfkc), by_utf8proc(text, UTF8PROC_COMPOSE | UTF8PROC_COMPAT));
    EXPECT_EQ(normalize_unicode(text, NormalForm::nfkd), by_utf8proc(text, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT));
  }
}

TEST(NormalizeUnicode, LongTextsInPieces) {
  const std::string text = repeated("e\xCC\x81 \xC3\xA9l\xC3\xA8ve \xEA\xB0\x80", 5000);
  EXPECT_EQ(normalize_unicode(text, NormalForm::nfc), by_utf8proc(text, UTF8PROC_COMPOSE));
  EXPECT_EQ(normalize_unicode(text, NormalForm::nfd), by_utf8proc(text, UTF8PROC_DECOMPOSE));
}

// With a quadratic sort, these would take hours.
TEST(NormalizeUnicode, RunsOfMillionsOfMarksEnd) {
  constexpr size_t kCount = 500'000;
  const std::string acute = "\xCC\x81", dot = "\xCC\xA3";
  EXPECT_EQ(normalize_unicode("x" + repeated(acute + dot, kCount), NormalForm::nfd),
            "x" + repeated(dot, kCount) + repeated(acute, kCount));
  // U+0F73 is no mark, but its parts are.
  EXPECT_EQ(normalize_unicode(repeated("\xE0\xBD\xB3", kCount), NormalForm::nfc),
            repeated("\xE0\xBD\xB1", kCount) + repeated("\xE0\xBD\xB2", kCount));
}

TEST(TokenizerReplacements, GrowthOfAllTogetherIsBounded) {
  using Replacements = std::vector<std::pair<std::string, std::string>>;
  const auto create = [](Replacements replacements) {
    TokenizerSpec spec;
    spec.kind = "wordpiece";
    spec.tokens = {"q"};
    spec.replacements = std::move(replacements);
    return Tokenizer::create(std::move(spec));
  };
  EXPECT_TRUE(create(Replacements(6, {"q", "qq"})).ok());
  EXPECT_TRUE(create({{" ", "\xE2\x96\x81"}, {"``", "\""}}).ok());
  const std::vector<Replacements> refused = {Replacements(32, {"q", "qq"}), Replacements(65, {"a", "a"}),
                                             Replacements(1, {"q", std::string(65, 'q')}),
                                             Replacements(1, {std::string(257, 'q'), ""})};
  for (const Replacements& replacements : refused) {
    const auto made = create(replacements);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().kind, ErrorKind::unsupported) << made.error().message;
  }
}

}  // namespace
}  // namespace millrace
