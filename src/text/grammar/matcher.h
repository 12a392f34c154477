// GrammarMatcher: holds one stream to a grammar. Asks for the tokens that may come next, takes the one that came, and
// can go back. One thread at a time; a copy is independent from here on.
//
//   GrammarMatcher matcher(compiled);
//   matcher.mask(bits);                  // one bit a token, 1: may come next
//   if (matcher.accept(token)) ...
//   matcher.rollback(2);                 // the last two tokens did not come
//
// A text that can be read in very many ways may need more memory or work than one stream gets. Then exceeded() says so,
// nothing is allowed, and the stream cannot go on; after rollback() another way may be tried, as far as work is left.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "text/grammar/token_masks.h"

namespace millrace {

// A grammar for one vocabulary.
struct CompiledGrammar {
  std::shared_ptr<const Grammar> grammar;
  std::shared_ptr<TokenMasks> masks;
  int64_t id = 0;
  size_t table_bytes = size_t{16} << 20;  // of one stream's readings, before those that are over are dropped
  // ... in the middle of one token.
  size_t most_bytes() const { return table_bytes + std::max(table_bytes, size_t{1} << 20); }
};

class GrammarMatcher {
 public:
  static constexpr size_t kMostRollback = 1024;  // tokens that can be taken back
  // Work (see ParseTable) that a stream may do at first, and more for each token: two tenths of a second, and a few
  // milliseconds. Ordinary grammars take a hundredth of it.
  static constexpr int64_t kFirstWork = 200'000'000, kTokenWork = 4'000'000;

  explicit GrammarMatcher(CompiledGrammar compiled);

  size_t words() const { return compiled_.masks->trie().words(); }
  // Sets bits[token / 64] >> token % 64 for tokens that may come next. Ids that end a generation are not among them:
  // see complete(). Returns how many there are.
  size_t mask(std::span<uint64_t> bits);
  bool allows(TokenId token);

  // False, and nothing changes, when the token may not come next.
  bool accept(TokenId token);
  bool accept_text(std::string_view text);  // the same for bytes; counts as one token
  // Returns how many were taken back: at most kMostRollback, what was accepted, and what memory had room to keep.
  size_t rollback(size_t tokens);
  void reset();

  // The bound that the last mask(), allows(), accept() or jump_ahead() met. Then nobody knows what may come next.
  ParseBound exceeded() const { return exceeded_; }

  bool complete() const { return table_.complete(set_); }                   // the text may end here
  bool exhausted() const { return complete() && !table_.can_go_on(set_); }  // ... and must
  // The longest text that has to come next, whatever the choice of tokens: at most `limit` bytes. Not to be tokenised
  // without thought: a model writes text in the tokens that its tokenizer prefers, also across the end of this.
  std::string jump_ahead(size_t limit = 4096);

  size_t bytes() const { return table_.bytes(); }

 private:
  static constexpr size_t kMostMasks = 64;  // readings at once whose masks are put together

  void advance(SetId set);
  bool usable();
  void note_bounds();
  bool deep() const;
  SetId after(std::string_view text);
  bool add_state(ParseConfig config, std::span<uint64_t> bits);
  void add_walk(uint32_t first, uint32_t last, SetId from, std::span<uint64_t> bits);
  void shrink();

  CompiledGrammar compiled_;
  ParseTable table_;
  SetId set_;
  std::vector<SetId> history_;          // sets before the last tokens
  std::unordered_set<int32_t> masked_;  // states whose masks' work has been counted
  ParseBound exceeded_ = ParseBound::none;
};

}  // namespace millrace
