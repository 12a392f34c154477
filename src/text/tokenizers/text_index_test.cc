// TextIndex against a map of the same texts.
#include "text/tokenizers/text_index.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace millrace {
namespace {

// Short texts of few letters, so that many are equal or prefixes of others.
PackedStrings random_texts(int count) {
  std::mt19937 engine(7);
  PackedStrings texts;
  for (int i = 0; i < count; ++i) {
    std::string text(engine() % 7, ' ');
    for (char& c : text) c = static_cast<char>("ab\xC3\xA9\0"[engine() % 5]);
    texts.push(text);
  }
  return texts;
}

TEST(TextIndex, FindsTheFirstOfEqualTexts) {
  const PackedStrings texts = random_texts(5000);
  TextIndex index(texts);
  EXPECT_EQ(index.find("a"), TextIndex::kNone) << "of nothing";
  std::map<std::string, int32_t, std::less<>> expected;
  for (int32_t i = 0; i < 5000; ++i) {
    if (i == 40) index.reserve(5000);
    EXPECT_EQ(index.add(i), expected.emplace(texts[static_cast<size_t>(i)], i).second);
  }
  for (const auto& [text, first] : expected) EXPECT_EQ(index.find(text), first);
  for (const char* absent : {"c", "abc", "aaaaaaaa", "ab\xC3\xA9 "}) EXPECT_EQ(index.find(absent), TextIndex::kNone);
  index.clear();
  EXPECT_EQ(index.find("a"), TextIndex::kNone);
}

TEST(TextIndex, HashesOfPrefixesFollowFromEachOther) {
  const std::string text = "a few words";
  uint64_t hash = TextIndex::kEmptyHash;
  for (size_t i = 0; i < text.size(); ++i) {
    EXPECT_EQ(hash, TextIndex::hash(text.substr(0, i)));
    EXPECT_EQ(TextIndex::hash(text.substr(i), hash), TextIndex::hash(text));
    hash = TextIndex::extend(hash, text[i]);
  }
}

}  // namespace
}  // namespace millrace
