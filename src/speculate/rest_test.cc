// Suffix arrays, datastores and the drafter rest against plain definitions, and damaged files.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/philox.h"
#include "speculate/datastore.h"
#include "speculate/drafter.h"
#include "speculate/suffix_array.h"

namespace millrace {
namespace {

using Ids = std::vector<TokenId>;

Ids random_text(uint64_t round, size_t most_size, size_t most_letters, int64_t* letters) {
  const auto draw = [&](uint64_t what, uint64_t i, size_t most) {
    return static_cast<size_t>(philox_uniform(round, what, i) * static_cast<double>(most));
  };
  const size_t size = 1 + draw(1, 0, most_size), kinds = 1 + draw(1, 1, most_letters);
  Ids text(size);
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<TokenId>(draw(2, i, kinds));
  *letters = static_cast<int64_t>(kinds);
  return text;
}

class RestTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / fmt::format("rest_test.{}", getpid());
    std::filesystem::create_directories(folder_);
    path_ = (folder_ / "texts.store").string();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }

  Draft draft(const std::string& options, const Ids& tokens, int64_t most = 64) const {
    Draft out;
    auto drafter = make_drafter(fmt::format("rest:file={},{}", path_, options));
    EXPECT_TRUE(drafter.ok()) << (drafter.ok() ? "" : drafter.error().message);
    if (!drafter.ok()) return out;
    Sequence stream;
    stream.tokens = tokens;
    (*drafter)->texts.front().drafter->propose(stream, most, out);
    return out;
  }

  std::filesystem::path folder_;
  std::string path_;
};

TEST(SuffixArray, IsTheSortedSuffixes) {
  for (uint64_t round = 0; round < 2000; ++round) {
    int64_t letters = 0;
    Ids text = random_text(round, round % 10 == 0 ? 400 : 30, 5, &letters);
    if (round % 7 == 0)
      for (size_t i = 3; i < text.size(); ++i) text[i] = text[i - 3];  // periods make deep recursions
    Ids expected(text.size());
    std::iota(expected.begin(), expected.end(), 0);
    std::ranges::sort(expected, [&](TokenId a, TokenId b) {
      return std::lexicographical_compare(text.begin() + a, text.end(), text.begin() + b, text.end());
    });
    ASSERT_EQ(suffix_array(text, static_cast<int32_t>(letters)), expected) << round;
  }
  EXPECT_TRUE(suffix_array({}, 3).empty());
}

TEST_F(RestTest, ADatastoreFindsEveryOccurrence) {
  for (uint64_t round = 0; round < 20; ++round) {
    int64_t letters = 0;
    const Ids text = random_text(round, 200, 4, &letters);
    ASSERT_TRUE(write_datastore(path_, letters, 5, text).ok());
    const auto store = Datastore::open(path_);
    ASSERT_TRUE(store.ok()) << store.error().message;
    EXPECT_TRUE(store->verify().ok());
    for (size_t i = 0; i < text.size(); i += 7)
      for (size_t length = 1; length <= std::min<size_t>(6, text.size() - i); ++length) {
        const auto part = std::span(text).subspan(i, length);
        int64_t count = 0;
        for (size_t at = 0; at + length <= text.size(); ++at)
          count += std::ranges::equal(part, std::span(text).subspan(at, length));
        EXPECT_EQ(store->find(part).count(), count);
      }
  }
}

// The trie of what follows the longest match, as a map from a branch to its weight.
using Trie = std::map<Ids, int64_t>;

Trie plain_trie(const Ids& text, const Ids& tokens, size_t most, size_t least, size_t depth, TokenId end) {
  for (size_t length = std::min(most, tokens.size()); length >= least; --length) {
    Trie trie;
    bool found = false;
    for (size_t at = 0; at + length <= text.size(); ++at) {
      if (!std::equal(tokens.end() - static_cast<ptrdiff_t>(length), tokens.end(),
                      text.begin() + static_cast<ptrdiff_t>(at)))
        continue;
      found = true;
      Ids branch;
      for (size_t i = at + length; i < std::min(text.size(), at + length + depth) && text[i] != end; ++i) {
        branch.push_back(text[i]);
        ++trie[branch];
      }
    }
    if (found) return trie;
  }
  return {};
}

TEST_F(RestTest, TheDraftIsTheHeaviestPartOfTheTrie) {
  int drafts = 0;
  Ids text;
  int64_t letters = 0;
  for (uint64_t round = 0; round < 400; ++round) {
    if (round % 10 == 0) {
      text = random_text(round, 120, 6, &letters);
      for (size_t i = 30; i < text.size(); i += 40) text[i] = static_cast<TokenId>(letters);
      ASSERT_TRUE(write_datastore(path_, letters, 5, text).ok());
    }
    const auto end = static_cast<TokenId>(letters);
    int64_t unused = 0;
    Ids tokens = random_text(round + 1000, 8, static_cast<size_t>(letters), &unused);
    for (TokenId& token : tokens) token = static_cast<TokenId>(token % letters);
    const size_t depth = 1 + round % 5, budget = depth * 3;
    const Trie trie = plain_trie(text, tokens, 4, 1, depth, end);
    const Draft out = draft(fmt::format("n=4,min=1,k={},branches=3", depth), tokens);
    ASSERT_EQ(out.tokens.size(), std::min(budget, trie.size())) << round;
    std::vector<int64_t> drafted, all;
    for (const auto& [branch, weight] : trie) all.push_back(weight);
    for (int64_t i = 0; i < out.size(); ++i) {
      Ids branch;
      for (int64_t at = i; at >= 0; at = out.parent(at))
        branch.insert(branch.begin(), out.tokens[static_cast<size_t>(at)]);
      ASSERT_TRUE(trie.contains(branch)) << round;
      drafted.push_back(trie.at(branch));
    }
    EXPECT_TRUE(std::ranges::is_sorted(drafted, std::greater())) << "the heaviest first";
    std::ranges::sort(all, std::greater());
    all.resize(drafted.size());
    EXPECT_EQ(drafted, all) << round;
    drafts += !drafted.empty();
    const Draft chain = draft(fmt::format("n=4,min=1,k={},branches=1", depth), tokens);
    EXPECT_TRUE(chain.parents.empty());
    Ids branch;
    for (const TokenId token : chain.tokens) {
      int64_t heaviest = 0;
      for (TokenId other = 0; other < letters; ++other) {
        Ids next = branch;
        next.push_back(other);
        if (trie.contains(next)) heaviest = std::max(heaviest, trie.at(next));
      }
      branch.push_back(token);
      ASSERT_TRUE(trie.contains(branch));
      EXPECT_EQ(trie.at(branch), heaviest);
    }
  }
  EXPECT_GT(drafts, 300);
}

TEST_F(RestTest, AFrequentContinuationIsFoundAmongManyOccurrences) {
  Ids text;
  for (int i = 0; i < 500; ++i) {
    text.push_back(0);
    text.push_back(i % 4 == 0 ? 7 : 10 + i);  // 7 has a quarter, the others one occurrence each
  }
  ASSERT_TRUE(write_datastore(path_, 1000, 5, text).ok());
  EXPECT_EQ(draft("min=1,k=1,branches=2", {0}).tokens.front(), 7);
}

TEST_F(RestTest, DraftsNoMoreThanItMayAndNothingUnknown) {
  ASSERT_TRUE(write_datastore(path_, 10, 5, Ids{1, 2, 3, 4, 5, 6}).ok());
  EXPECT_EQ(draft("k=4,branches=1", {1, 2}).tokens, (Ids{3, 4, 5, 6}));
  EXPECT_EQ(draft("k=4,branches=2", {1, 2}, 2).tokens, (Ids{3, 4}));
  EXPECT_EQ(draft("k=4,branches=2", {2}).size(), 0) << "one token is less than min";
  EXPECT_EQ(draft("k=4,branches=2", {9, 9}).size(), 0);
  EXPECT_EQ(draft("k=4,branches=2", {}).size(), 0);
}

TEST_F(RestTest, DamagedAndForeignFilesAreRefused) {
  const auto message = [&] {
    const auto store = Datastore::open(path_);
    return store.ok() ? (store->verify().ok() ? "" : store->verify().error().message) : store.error().message;
  };
  ASSERT_TRUE(write_datastore(path_, 10, 5, Ids{1, 2, 3, 1, 2, 4}).ok());
  const std::string whole = bytes();
  ASSERT_EQ(message(), "");
  for (size_t i = 0; i < whole.size(); ++i) {  // no flipped bit goes unseen
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    write(damaged);
    EXPECT_NE(message(), "") << "byte " << i;
  }
  for (size_t size = 0; size < whole.size(); ++size) {
    write(whole.substr(0, size));
    EXPECT_NE(message(), "") << size << " bytes";
  }
  write(whole + '\0');
  EXPECT_NE(message().find("bytes, its header promises"), std::string::npos);
  std::filesystem::remove(path_);
  EXPECT_EQ(Datastore::open(path_).error().kind, ErrorKind::corrupt);
  write(whole);
  auto drafter = make_drafter("rest:file=" + path_).value();
  EXPECT_TRUE(drafter->check(10, {}).ok());
  EXPECT_NE(drafter->check(11, {}).error().message.find("a vocabulary of 10 tokens, the model has 11"),
            std::string::npos);
  const std::vector<std::string> names(10, "a");
  EXPECT_EQ(drafter->check(10, names).error().kind, ErrorKind::user) << "another vocabulary of that size";
  drafter.reset();
  ASSERT_TRUE(write_datastore(path_, 10, vocabulary_hash(names), Ids{1, 2}).ok());
  drafter = make_drafter("rest:file=" + path_).value();
  EXPECT_TRUE(drafter->check(32, names).ok()) << "a model may have more rows than its tokenizer";
  EXPECT_NE(vocabulary_hash(names),
            vocabulary_hash(std::vector<std::string>{"aa", "", "a", "a", "a", "a", "a", "a", "a", "a"}));
  EXPECT_EQ(make_drafter("rest").error().message,
            "drafter rest: file: give the path of a datastore, which `millrace datastore` writes");
  EXPECT_EQ(write_datastore(path_, 10, 5, {}).error().message, "datastore: the texts have no tokens");
  EXPECT_EQ(write_datastore(path_, 10, 5, Ids{11}).error().kind, ErrorKind::user);
}

// A file whose sums are right but whose suffixes point anywhere drafts something, and reads nothing outside the file.
TEST_F(RestTest, SuffixesOutsideTheTextAreNotFollowed) {
  ASSERT_TRUE(write_datastore(path_, 10, 5, Ids{1, 2, 3, 1, 2, 4}).ok());
  std::string bad = bytes();
  for (size_t i = bad.size() - 24; i < bad.size(); ++i) bad[i] = static_cast<char>(0xf0 + i % 16);
  write(bad);
  for (const Ids& tokens : {Ids{1, 2}, Ids{3}, Ids{9, 1}}) EXPECT_LE(draft("min=1,k=4,branches=2", tokens).size(), 8);
}

}  // namespace
}  // namespace millrace
