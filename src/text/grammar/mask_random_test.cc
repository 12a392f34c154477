// Masks over random vocabularies against feeding each token's bytes, and the token tree of a vocabulary.
#include <functional>
#include <random>

#include "text/grammar/grammar_test.h"

namespace millrace::testing {
namespace {

std::vector<std::string> random_vocabulary(std::mt19937& random, std::string_view letters, size_t size,
                                           size_t longest) {
  std::vector<std::string> out;
  for (size_t i = 0; i < size; ++i) {
    std::string one;
    for (size_t n = random() % (longest + 1); n > 0; --n) one += letters[random() % letters.size()];
    out.push_back(std::move(one));  // some are empty, some are duplicates
  }
  for (const char c : letters) out.push_back(std::string(1, c));
  return out;
}

bool has(const std::vector<uint64_t>& bits, size_t id) { return bits[id / 64] >> (id % 64) & 1; }

// A random walk; in each state every token's bit must equal whether its bytes can be fed, and a rollback restores the
// state.
void expect_masks(const Constraint& constraint, std::string_view letters, uint32_t seed, size_t size, size_t longest) {
  std::mt19937 random(seed);
  const std::vector<std::string> pieces = random_vocabulary(random, letters, size, longest);
  GrammarCache cache([&] { return pieces; });
  const auto compiled = cache.get(constraint);
  ASSERT_TRUE(compiled.ok()) << compiled.error().message;
  GrammarMatcher matcher(*compiled);
  TextMatcher plain(constraint);
  std::vector<uint64_t> bits(matcher.words()), before;
  std::string text;
  for (int step = 0; step < 14; ++step) {
    const size_t count = matcher.mask(bits);
    std::vector<TokenId> allowed;
    for (size_t id = 0; id < pieces.size(); ++id) {
      const bool fits = !pieces[id].empty() && plain.begins(text + pieces[id]);
      ASSERT_EQ(has(bits, id), fits) << constraint.text << " after '" << text << "': '" << pieces[id] << "'";
      if (fits) allowed.push_back(static_cast<TokenId>(id));
    }
    ASSERT_EQ(count, allowed.size());
    ASSERT_EQ(matcher.complete(), plain.accepts(text));
    ASSERT_EQ(matcher.exhausted(), matcher.complete() && allowed.empty());
    if (allowed.empty()) return;
    before = bits;
    const TokenId first = allowed[random() % allowed.size()], next = allowed[random() % allowed.size()];
    ASSERT_TRUE(matcher.accept(first));
    GrammarMatcher copy = matcher;
    const std::string forced = copy.jump_ahead(), start = text + pieces[static_cast<size_t>(first)];
    ASSERT_TRUE(plain.begins(start + forced));
    for (size_t n = 0; n < forced.size(); ++n) {
      ASSERT_FALSE(plain.accepts(start + forced.substr(0, n))) << "the text could end before the forced part";
      for (const char c : letters) ASSERT_EQ(plain.begins(start + forced.substr(0, n) + c), c == forced[n]);
    }
    ASSERT_EQ(copy.jump_ahead(1), forced.substr(0, 1));
    ASSERT_EQ(matcher.rollback(1), 1u);
    matcher.mask(bits);
    ASSERT_EQ(bits, before);
    ASSERT_FALSE(matcher.accept(-1) || matcher.accept(static_cast<TokenId>(pieces.size())) ||
                 matcher.allows(static_cast<TokenId>(pieces.size())));
    ASSERT_TRUE(matcher.accept(next));
    text += pieces[static_cast<size_t>(next)];
  }
  const size_t taken = matcher.rollback(1000);
  ASSERT_EQ(taken, 14u);
  ASSERT_FALSE(matcher.rollback(1) > 0);
}

TEST(RandomMasks, Grammars) {
  uint32_t seed = 0;
  for (const char* source :
       {"root ::= \"a\" root \"b\" | \"c\"", "root ::= x+\nx ::= \"ab\" | \"a\" y\ny ::= \"c\" x y | \"b\"",
        "root ::= (\"a\" | \"ab\" | \"abc\"){2,4}", "root ::= \"(\" root \")\" root | \"a\"?",
        "root ::= l \"c\"\nl ::= (\"a\" r)*\nr ::= \"b\" | \"b\" r",
        "root ::= \"abc\" t | \"abb\"\nt ::= \"a\"{3} t | \"c\"", "root ::= [^a]* \"a\" [bc]{2}"})
    for (int turn = 0; turn < 3; ++turn) expect_masks(gbnf_of(source), "abc()", ++seed, 60, 6);
}

TEST(RandomMasks, CountedStringsAndLists) {
  uint32_t seed = 100;
  for (
      const char* schema :
      {R"({"type":"string","minLength":2,"maxLength":4})",
       R"({"type":"array","items":{"type":"integer"},"minItems":3,"maxItems":5})",
       R"({"type":"array","items":{"type":"string","maxLength":1},"maxItems":3})",
       R"({"type":"array","items":{"type":"array","items":{"const":1},"minItems":2,"maxItems":3},"minItems":2,"maxItems":2})",
       R"({"type":"object","maxProperties":2,"additionalProperties":{"const":1}})",
       R"({"type":"array","prefixItems":[{"const":1}],"items":{"type":"string","minLength":1},"minItems":2,"maxItems":4})",
       R"({"type":"object","properties":{"1":{"const":1},"a":{"type":"string"}},"required":["a"],"maxProperties":2})"})
    for (int turn = 0; turn < 3; ++turn) expect_masks(schema_of(schema), "[]{}\",:1a\\n", ++seed, 150, 5);
}

// Enough tokens that masks are stored as bits, not as lists.
TEST(RandomMasks, LargeVocabulary) {
  expect_masks(schema_of(R"({"type":"array","items":{"type":"string","maxLength":9}})"), "[]\",abcdefgh", 7, 6000, 4);
  expect_masks(regex_of("[a-h]*,[a-d]{2,9}"), "abcdefgh,", 8, 6000, 5);
}

TEST(TokenTree, HoldsEveryPieceWithItsTokens) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::string> pieces = random_vocabulary(random, std::string_view("ab\0\xFF", 4), 40, 5);
    pieces.push_back(std::string(TokenTrie::kMaxTokenBytes, 'a'));
    pieces.push_back(std::string(TokenTrie::kMaxTokenBytes + 1, 'b'));
    const TokenTrie trie(pieces);
    ASSERT_EQ(trie.vocab_size(), static_cast<int32_t>(pieces.size()));
    ASSERT_EQ(trie.words(), (pieces.size() + 63) / 64);
    std::map<std::string, std::vector<TokenId>> found, wanted;
    std::vector<std::string> path{""};
    const auto nodes = trie.nodes();
    ASSERT_EQ(nodes[0].end, nodes.size());
    for (uint32_t i = 1; i < nodes.size(); ++i) {
      ASSERT_LE(nodes[i].depth, path.size());
      path.resize(nodes[i].depth);
      path.push_back(path.back() + static_cast<char>(nodes[i].byte));
      for (const TokenId token : trie.tokens(i)) found[path.back()].push_back(token);
      uint32_t end = i + 1;
      while (end < nodes.size() && nodes[end].depth > nodes[i].depth) ++end;
      ASSERT_EQ(nodes[i].end, end);
      ASSERT_EQ(trie.has_children(i), end > i + 1);
    }
    for (size_t id = 0; id < pieces.size(); ++id) {
      const bool in = !pieces[id].empty() && pieces[id].size() <= TokenTrie::kMaxTokenBytes;
      ASSERT_EQ(trie.piece(static_cast<TokenId>(id)), in ? pieces[id] : "");
      if (in) wanted[pieces[id]].push_back(static_cast<TokenId>(id));
    }
    ASSERT_EQ(found, wanted);
  }
}

TEST(TokenMaskStore, EvictsLeastRecentlyUsed) {
  std::vector<std::string> pieces;
  for (const char c : std::string_view("abcdefgh")) pieces.push_back(std::string(1, c));
  const auto grammar = std::make_shared<const Grammar>(
      compile_constraint(gbnf_of("root ::= x\nx ::= \"a\" \"b\" \"c\" \"d\" \"e\" \"f\" x | \"g\"")).value());
  TokenMasks all(pieces);
  const size_t one = all.find(grammar, 1, 0)->bytes();
  EXPECT_EQ(all.bytes(), one);
  TokenMasks few(pieces, 3 * one + one / 2);
  const auto computed = [&](int32_t state) {
    const int64_t before = few.computed();
    few.find(grammar, 1, state);
    return few.computed() - before;
  };
  for (const int32_t state : {0, 1, 2}) EXPECT_EQ(computed(state), 1);
  EXPECT_EQ(computed(0), 0);
  EXPECT_EQ(computed(3), 1);
  EXPECT_LE(few.bytes(), 3 * one + one / 2);
  EXPECT_EQ(computed(0), 0) << "it was used after 1 and 2";
  EXPECT_EQ(computed(2), 0);
  EXPECT_EQ(computed(1), 1) << "it was evicted";
}

}  // namespace
}  // namespace millrace::testing
