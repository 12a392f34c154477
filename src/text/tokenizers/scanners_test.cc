// Each hand-written scanner against PCRE2 on the pattern it implements.
#include "text/tokenizers/scanners.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "text/regex.h"
#include "text/tokenizers/pre_tokenizers.h"
#include "text/unicode.h"

namespace millrace {
namespace {

std::vector<std::string> cut(std::string_view text, const std::vector<uint32_t>& ends) {
  std::vector<std::string> words;
  uint32_t begin = 0;
  for (uint32_t end : ends) {
    words.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

std::vector<std::string> split(const std::string& name, std::string_view text) {
  const auto pre = PreTokenizer::from_name(name);
  EXPECT_TRUE(pre.ok()) << name;
  std::vector<uint32_t> ends, scratch;
  pre->split(text, ends, scratch);
  return cut(text, ends);
}

// Text dense in the characters that the patterns distinguish.
std::string random_text(std::mt19937& rng) {
  static const uint32_t kAlphabet[] = {
      'a',   'b',    's',    't',    'r',    'e',    'v',    'm',    'l',    'd',     'A',     'S',      'L',
      'Z',   '0',    '1',    '9',    ' ',    ' ',    ' ',    '\t',   '\n',   '\r',    '\n',    '\'',     '\'',
      '.',   ',',    '!',    '/',    '(',    ')',    '-',    '_',    '$',    '+',     '<',     '`',      '|',
      '~',   '^',    0x1,    0x7F,   0x85,   0xA0,   0x17F,  0x212A, 0xE9,   0xC9,    0x301,   0x93E,    0x939,
      0x660, 0x2160, 0x1C5,  0x2B0,  0x2003, 0x3000, 0x3002, 0x4E2D, 0x9FA5, 0x3042,  0x30AB,  0xAC00,   0xD7A3,
      0x800, 0xFF01, 0xFF21, 0x2018, 0x2026, 0xA3,   0x20AC, 0x200D, 0xFE0F, 0x1F600, 0x1E900, 0x10FFFF, 0x964};
  std::string text;
  const int length = static_cast<int>(rng() % 24) + 1;
  for (int i = 0; i < length; ++i) append_utf8(text, kAlphabet[rng() % std::size(kAlphabet)]);
  return text;
}

TEST(Scanners, EveryKnownPatternMatchesWhatPcre2Matches) {
  std::mt19937 rng(7);
  for (const KnownPattern& known : known_patterns()) {
    SCOPED_TRACE(known.regex);
    const auto regex = Regex::compile(known.regex);
    ASSERT_TRUE(regex.ok()) << regex.error().message;
    for (int round = 0; round < 3000; ++round) {
      const std::string text = random_text(rng);
      // Both matches and gaps become pieces, so the pieces must agree.
      std::vector<size_t> expected, actual;
      size_t gap = 0;
      const auto piece = [&](std::vector<size_t>& ends, size_t begin, size_t end) {
        if (begin > gap) ends.push_back(begin);
        ends.push_back(gap = end);
      };
      int64_t work = Regex::work_for(text.size());
      const auto found = [&](size_t begin, size_t end) { piece(expected, begin, end); };
      ASSERT_EQ(regex->find_all(text, work, found), text.size());
      gap = 0;
      for (size_t pos = 0; pos < text.size();) {
        const size_t end = known.scan(text, pos);
        if (end > pos) piece(actual, pos, end);
        pos = end > pos ? end : pos + char_at(text, pos).length;
      }
      for (auto* ends : {&expected, &actual}) {
        if (ends->empty() || ends->back() != text.size()) ends->push_back(text.size());
      }
      ASSERT_EQ(actual, expected) << "text: " << spell_bytes(text);
    }
  }
}

TEST(Scanners, SplitsCoverTheTextInOrderEvenWhenItIsNotUtf8) {
  std::mt19937 rng(8);
  for (std::string_view name : {"default", "gpt-2", "llama-bpe", "qwen35", "gpt-4o", "tekken", "deepseek-llm",
                                "deepseek-coder", "deepseek-v3", "falcon", "starcoder", "bloom", "viking", "gemma4"}) {
    SCOPED_TRACE(name);
    const auto pre = PreTokenizer::from_name(name);
    ASSERT_TRUE(pre.ok());
    for (int round = 0; round < 300; ++round) {
      std::string text;
      for (size_t n = rng() % 40; n > 0; --n) text += rng() % 3 ? static_cast<char>(rng()) : ' ';
      std::vector<uint32_t> ends, scratch;
      pre->split(text, ends, scratch);
      uint32_t before = 0;
      for (uint32_t end : ends) {
        ASSERT_GT(end, before);
        before = end;
      }
      ASSERT_EQ(before, text.size());
    }
  }
}

using Words = std::vector<std::string>;

TEST(PreTokenizer, WordsOfEachFamily) {
  EXPECT_EQ(split("gpt-2", "Hello, y'all! it's  12345"),
            (Words{"Hello", ",", " y", "'", "all", "!", " it", "'s", " ", " 12345"}));
  EXPECT_EQ(split("llama-bpe", "it'S 12345\n\n  x"), (Words{"it", "'S", " ", "123", "45", "\n\n", " ", " x"}));
  EXPECT_EQ(split("qwen2", "a 123"), (Words{"a", " ", "1", "2", "3"}));
  EXPECT_EQ(split("gpt-4o", "camelCaseWORDs don't"), (Words{"camel", "Case", "WORDs", " don't"}));
  EXPECT_EQ(split("tekken", "camelCase don't 12"), (Words{"camel", "Case", " don", "'t", " ", "1", "2"}));
  EXPECT_EQ(split("deepseek-v3",
                  "x=1234 \xE4\xB8\xAD\xE6\x96\x87"
                  "a"),
            (Words{"x", "=", "123", "4", " ", "\xE4\xB8\xAD\xE6\x96\x87", "a"}));
  EXPECT_EQ(split("starcoder", "a 12"), (Words{"a", " ", "1", "2"}));
  EXPECT_EQ(split("gemma4", "a b\n\nc"), (Words{"a b", "\n\n", "c"}));
  // A combining mark belongs to the word for Qwen 3.5, and is punctuation-like for Qwen 2.
  EXPECT_EQ(split("qwen35",
                  "a\xCC\x81"
                  "b"),
            (Words{"a\xCC\x81"
                   "b"}));
  EXPECT_EQ(split("qwen2",
                  "a\xCC\x81"
                  "b"),
            (Words{"a",
                   "\xCC\x81"
                   "b"}));
}

TEST(PreTokenizer, UnknownNameIsUnsupportedAndNamed) {
  const auto pre = PreTokenizer::from_name("no-such-thing");
  ASSERT_FALSE(pre.ok());
  EXPECT_EQ(pre.error().kind, ErrorKind::unsupported);
  EXPECT_NE(pre.error().message.find("no-such-thing"), std::string::npos);
}

TEST(Regex, RejectsCatastrophicPatternsAndBadSyntax) {
  for (const char* pattern : {"(a+)+$", "(?:a|aa)+\\d", "(?:\\s|\\s)*\\d"}) {
    const auto regex = Regex::compile(pattern);
    EXPECT_FALSE(regex.ok()) << pattern;
  }
  EXPECT_FALSE(Regex::compile("(unclosed").ok());
  EXPECT_FALSE(Regex::compile(std::string(1 << 20, 'a')).ok());
}

TEST(PreTokenizer, PatternThatBlowsUpOnThisTextFallsBackToWords) {
  const auto pre = PreTokenizer::from_patterns({"(?:b|b)*c|z"});
  ASSERT_TRUE(pre.ok());
  const std::string run(200, 'b');
  std::vector<uint32_t> ends, scratch;
  pre->split("z" + run + " d c", ends, scratch);
  EXPECT_EQ(cut("z" + run + " d c", ends), (Words{"z", run, " d", " c"}));
}

TEST(PreTokenizer, UntrustedPatternsStillCoverTheText) {
  for (const char* pattern : {"", "a*", "(?=a)", "x\\Ky", "[^a]+?", "\\S+"}) {
    const auto pre = PreTokenizer::from_patterns({pattern});
    if (!pre.ok()) continue;
    std::vector<uint32_t> ends, scratch;
    pre->split("aab xy  \xFF z", ends, scratch);
    ASSERT_FALSE(ends.empty()) << pattern;
    EXPECT_EQ(ends.back(), 11u) << pattern;
  }
}

}  // namespace
}  // namespace millrace
