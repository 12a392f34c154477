// Prompt lookup decoding (Saxena, 2023): finds where the stream's last tokens occurred before and drafts what followed
// them there. The longest match counts, of equal ones the latest. A draft that reaches the stream's end goes on with
// its own tokens, as LZ77 copies do (Ziv and Lempel, 1977), so that short periods are continued. With several branches
// the draft is a tree of the continuations of as many matches, best first, those that are in it already left out.
//
//   tokens  the cat sat . the cat       match "the cat", draft: sat . the cat
#include <fmt/format.h>

#include <algorithm>

#include "speculate/draft_tree.h"
#include "speculate/drafters/factories.h"

namespace millrace {
namespace {

constexpr int64_t kMaxCompared = 256;  // matches whose continuations are compared with the draft, for each branch

class Ngram final : public TextDrafter {
 public:
  Ngram(int64_t most_matched, int64_t least_matched, int64_t drafted, int64_t branches)
      : most_matched_(most_matched), least_matched_(least_matched), drafted_(drafted), branches_(branches) {
    branch_.reserve(static_cast<size_t>(drafted));
  }

  void propose(const Sequence& stream, int64_t most, Draft& out) override {
    if (branches_ == 1) return propose_chain(stream.tokens, most, out.tokens);
    for (int64_t i = 0; i < branches_ && out.size() < most; ++i) {
      const int64_t next = find(stream.tokens, &out);
      if (next == 0) return;
      branch_.clear();
      follow(stream.tokens, next, drafted_, branch_);
      add_branch(out, branch_, most);
    }
  }

 private:
  void propose_chain(const std::vector<TokenId>& tokens, int64_t most, std::vector<TokenId>& out) {
    const int64_t next = find(tokens, nullptr);
    if (next > 0) follow(tokens, next, std::min(most, drafted_), out);
  }

  // Appends the tokens from `next` on to `out`, which is empty.
  static void follow(const std::vector<TokenId>& tokens, int64_t next, int64_t count, std::vector<TokenId>& out) {
    for (int64_t i = next; i < next + count; ++i) {
      const int64_t beyond = i - std::ssize(tokens);
      out.push_back(beyond < 0 ? tokens[static_cast<size_t>(i)] : out[static_cast<size_t>(beyond)]);
    }
  }

  bool has(const Draft& draft, const std::vector<TokenId>& tokens, int64_t next) {
    branch_.clear();
    follow(tokens, next, drafted_, branch_);
    return has_branch(draft, branch_);
  }

  // The index behind the best earlier match of the last tokens, whose continuation `drafted` does not have; 0: none is
  // long enough.
  int64_t find(const std::vector<TokenId>& tokens, const Draft* drafted) {
    const TokenId* end = tokens.data() + tokens.size();
    const int64_t size = std::ssize(tokens);
    int64_t best = least_matched_ - 1, next = 0, compared = 0;
    for (int64_t i = size - 1; i > best && best < most_matched_; --i) {  // a match that ends before i
      const TokenId* match = tokens.data() + i;
      if (match[-1] != end[-1]) continue;
      int64_t matched = 1;
      while (matched < std::min(i, most_matched_) && match[-1 - matched] == end[-1 - matched]) ++matched;
      if (matched <= best) continue;
      if (drafted && ++compared > kMaxCompared) break;
      if (!(drafted && has(*drafted, tokens, i))) best = matched, next = i;
    }
    return next;
  }

  int64_t most_matched_, least_matched_, drafted_, branches_;
  std::vector<TokenId> branch_;
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_ngram_drafter(const OptionValues& options) {
  const int64_t most = options.integer("n"), least = options.integer("min");
  if (least > most) return Error::user(fmt::format("min: must be at most n, which is {}, got {}", most, least));
  const int64_t drafted = options.integer("k"), branches = options.integer("branches");
  if (branches > 1 && branches * drafted > kMaxTreeTokens)
    return Error::user(fmt::format("branches: {} branches of k={} tokens are {}; a tree has at most {}", branches,
                                   drafted, branches * drafted, kMaxTreeTokens));
  return text_drafter({.longest = drafted * branches, .trees = branches > 1},
                      std::make_unique<Ngram>(most, least, drafted, branches));
}

}  // namespace millrace
