// Encoding takes work in proportion to the text, whatever the tokenizer's file says: normalizers, split patterns and
// character maps are run over texts of n, 2n and 4n bytes, and their units of work are compared (work_count.h).
#include <gtest/gtest.h>

#include "base/ordered_json.h"
#include "text/regex.h"
#include "text/tokenizer_files.h"
#include "text/tokenizers/pre_tokenizers.h"
#include "text/tokenizers/scanners.h"
#include "text/tokenizers/sentencepiece_normalizer.h"
#include "text/unicode.h"
#include "text/work_count.h"

namespace millrace {
namespace {

std::string filled(std::string_view unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

// A text split by one pattern: the ends of its pieces.
std::vector<uint32_t> pieces_of(const std::string& pattern, const std::string& text) {
  std::vector<uint32_t> ends, scratch;
  const auto pre = PreTokenizer::from_patterns({pattern});
  EXPECT_TRUE(pre.ok()) << pattern;
  if (pre.ok()) pre->split(text, ends, scratch);
  return ends;
}

int64_t work_of(const std::string& pattern, const std::string& text) {
  const int64_t before = text_work;
  const auto ends = pieces_of(pattern, text);
  EXPECT_TRUE(!ends.empty() && ends.back() == text.size()) << pattern;
  return text_work - before;
}

// Each scans a run again from each of its characters, or reads ahead to its end.
const std::pair<const char*, const char*> kSlowPatterns[] = {
    {"[a-z]+\\d|[a-z]", "a"},
    {"[a-z ]+\\d|\\w", "aa "},
    {"\\s+(?=x)|\\s", " "},
    {"\\s+$|x|\\s(?=\\S)", " a"},
    {"a(?=.*z)|a", "a"},
    {"\\w*\\w*\\d|\\w", "a"},
    {"(?:[a-z]+,)+\\d|[a-z]", "ab,"},
    {"b*b*b*c|b", "b"},
    {"(?s)x.*y.*z|\\S", "xy"},
    {"(?<=a)[^z]*z|\\S", "ab"},
    {"\\p{L}+\\p{N}|\\p{L}", "\xC3\xA9"},
};

TEST(TextGrowth, SplitsTakeWorkInProportionToTheText) {
  for (const auto& [pattern, unit] : kSlowPatterns) {
    for (const size_t bytes : {20'000, 80'000, 320'000}) {
      const std::string text = filled(unit, bytes);
      EXPECT_LT(work_of(pattern, text), Regex::work_for(text.size()) + 3 * std::ssize(text))
          << pattern << ", " << bytes;
    }
  }
}

// Windows do not change what matches: long runs, look-ahead and look-behind against the scanners of known patterns,
// which have none.
TEST(TextGrowth, WindowsMatchWhatTheWholeTextMatches) {
  const std::string letters = filled("a", 700), spaces(900, ' '), lines(500, '\n'), accents = filled("\xC3\xA9", 601);
  const std::string texts[] = {
      letters,
      letters + " " + letters,
      spaces + "x" + spaces,
      "x" + spaces,
      spaces + lines + spaces + "y",
      accents + letters + accents,
      filled("1", 300) + filled("-+", 400) + lines,
      std::string(127, 'a') + " b" + std::string(126, ' ') + "'s" + std::string(128, 'B') + "'ll",
      filled("\xE4\xB8\xAD", 1500) + accents};
  for (const KnownPattern& known : known_patterns()) {
    if (known.only_at_end) continue;  // its scanner searches from the end
    const auto regex = Regex::compile(known.regex);
    ASSERT_TRUE(regex.ok());
    for (const std::string& text : texts) {
      std::vector<size_t> expected, actual;
      int64_t work = Regex::work_for(text.size());
      const auto found = [&](size_t begin, size_t end) { actual.insert(actual.end(), {begin, end}); };
      ASSERT_EQ(regex->find_all(text, work, found), text.size()) << known.regex;
      for (size_t pos = 0; pos < text.size();) {
        const size_t end = known.scan(text, pos);
        if (end > pos) expected.insert(expected.end(), {pos, end});
        pos = end > pos ? end : pos + char_at(text, pos).length;
      }
      EXPECT_EQ(actual, expected) << known.regex << " in a text of " << text.size();
      EXPECT_GT(work, 0) << known.regex;
    }
  }
}

TEST(TextGrowth, LongMatchesOfOtherPatternsAreFound) {
  const std::string run = filled("a", 50'000);
  EXPECT_EQ(pieces_of("[a-z]+\\d", run + "1" + "b2"), (std::vector<uint32_t>{50'001, 50'003}));
  EXPECT_EQ(pieces_of("(?<=aaa)b", "aab" + run + "b"), (std::vector<uint32_t>{50'003, 50'004}));
  EXPECT_EQ(pieces_of("a+(?=b)|b", run + "b"), (std::vector<uint32_t>{50'000, 50'001}));
  EXPECT_EQ(pieces_of("x[^y]*y", "x" + run + "yx"), (std::vector<uint32_t>{50'002, 50'003}));
}

// A double array with the one key "a", whose value is the string at 0.
std::vector<uint8_t> map_of_a(const std::string& output) {
  std::vector<uint32_t> units(512, 0);
  units[0] = 1u << 10;                                  // root: offset 1
  units[1 ^ 'a'] = uint32_t{'a'} | 1u << 8 | 2u << 10;  // a leaf follows at offset 2
  units[(1 ^ 'a') ^ 2] = 0x80000000u;                   // value 0
  std::vector<uint8_t> map;
  const auto put = [&](uint32_t n) {
    for (int i = 0; i < 4; ++i) map.push_back(static_cast<uint8_t>(n >> 8 * i));
  };
  put(static_cast<uint32_t>(4 * units.size()));
  for (const uint32_t unit : units) put(unit);
  map.insert(map.end(), output.begin(), output.end());
  map.push_back(0);
  return map;
}

TokenizerSpec mapped_spec(const std::string& output) {
  TokenizerSpec spec;
  spec.kind = "unigram";
  spec.tokens = {"<unk>", "a", "b"};
  spec.types = {TokenType::unknown, TokenType::normal, TokenType::normal};
  spec.scores = {0, -1, -2};
  spec.unk = 0;
  spec.precompiled_charsmap = map_of_a(output);
  return spec;
}

TEST(TextGrowth, CharacterMapsThatGrowATextAreRefused) {
  TokenizerSpec spec = mapped_spec(std::string(64, 'b'));
  const auto normalizer = SentencePieceNormalizer::create(spec);
  ASSERT_TRUE(normalizer.ok());
  std::string out;
  normalizer->normalize("xa", false, out);
  EXPECT_EQ(out, "x" + std::string(64, 'b'));
  EXPECT_TRUE(Tokenizer::create(spec).ok());
  const auto longer = Tokenizer::create(mapped_spec(std::string(65, 'b')));
  ASSERT_FALSE(longer.ok());
  EXPECT_EQ(longer.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(longer.error().message, "tokenizer: character map writes 65 bytes for a character, at most 64");
  spec.replacements = {{"c", std::string(5, 'a')}};
  const auto both = Tokenizer::create(spec);
  ASSERT_FALSE(both.ok());
  EXPECT_EQ(both.error().kind, ErrorKind::unsupported);
  spec.replacements = {{"c", std::string(4, 'a')}};
  EXPECT_TRUE(Tokenizer::create(spec).ok());
}

// A map whose keys have no end: every node leads to the next one.
TEST(TextGrowth, KeysOfACharacterMapAreBounded) {
  TokenizerSpec spec = mapped_spec("b");
  std::vector<uint8_t>& map = spec.precompiled_charsmap;
  const uint32_t node = 1 ^ 'a';  // its offset leads back to it
  const uint32_t unit = uint32_t{'a'} | uint32_t{'a'} << 10;
  for (size_t i = 0; i < 4; ++i) map[4 + 4 * node + i] = static_cast<uint8_t>(unit >> 8 * i);
  const auto normalizer = SentencePieceNormalizer::create(spec);
  ASSERT_TRUE(normalizer.ok());
  std::vector<int64_t> work;
  for (const size_t bytes : {4'000, 8'000, 16'000}) {
    const int64_t before = text_work;
    std::string out;
    normalizer->normalize(std::string(bytes, 'a'), false, out);
    work.push_back(text_work - before);
  }
  EXPECT_LE(work[2], 5 * work[0]);
  EXPECT_LE(work[2], 300 * 16'000);
}

// Whole files: what their parts do to a text one after the other.
TEST(TextGrowth, FilesOfEveryKindTakeWorkInProportion) {
  const char* file = R"json({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "aa": 2, "aaaa": 3, " ": 4, "Ġ": 5},
      "merges": ["a a", "aa aa"]}, "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"},
      {"type": "Replace", "pattern": {"String": "b"}, "content": "aa"}, {"type": "Lowercase"}]},
      "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "[a-z]+\\d|\\s+(?=x)"}, "behavior": "Isolated"},
        {"type": "Digits"}, {"type": "ByteLevel"}]}, "decoder": {"type": "ByteLevel"}})json";
  auto spec = read_tokenizer_json(file);
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  const auto tokenizer = Tokenizer::create(std::move(spec).value());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  for (const char* unit : {"a", "ab", " ", "e\xCC\x81\xCC\xA3", "a1 ", "\xCC\x81\xCC\xA3", "B"}) {
    std::vector<int64_t> work;
    for (const size_t bytes : {10'000, 20'000, 40'000}) {
      const int64_t before = text_work;
      (void)(*tokenizer)->encode(filled(unit, bytes));
      work.push_back(text_work - before);
    }
    EXPECT_LT(work[2], 6 * work[0] + (1 << 20)) << unit;
  }
}

}  // namespace
}  // namespace millrace
