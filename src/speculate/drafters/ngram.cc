// Prompt lookup decoding (Saxena, 2023): finds where the stream's last tokens occurred before and drafts what followed
// them there. The longest match counts, of equal ones the latest. A draft that reaches the stream's end goes on with
// its own tokens, as LZ77 copies do (Ziv and Lempel, 1977), so that short periods are continued.
//
//   tokens  the cat sat . the cat       match "the cat", draft: sat . the cat
#include <fmt/format.h>

#include <algorithm>

#include "speculate/drafters/factories.h"

namespace millrace {
namespace {

class Ngram final : public Drafter {
 public:
  Ngram(int64_t most_matched, int64_t least_matched, int64_t drafted)
      : most_matched_(most_matched), least_matched_(least_matched), drafted_(drafted) {}

  int64_t longest() const override { return drafted_; }

  void propose(const Sequence& stream, int64_t most, std::vector<TokenId>& out) override {
    const std::vector<TokenId>& tokens = stream.tokens;
    const int64_t next = find(tokens);
    if (next == 0) return;
    for (int64_t i = next; i < next + std::min(most, drafted_); ++i) {
      const int64_t beyond = i - stream.size();
      out.push_back(beyond < 0 ? tokens[static_cast<size_t>(i)] : out[static_cast<size_t>(beyond)]);
    }
  }

 private:
  // The index behind the best earlier match of the last tokens; 0: none is long enough.
  int64_t find(const std::vector<TokenId>& tokens) const {
    const TokenId* end = tokens.data() + tokens.size();
    const int64_t size = std::ssize(tokens);
    int64_t best = least_matched_ - 1, next = 0;
    for (int64_t i = size - 1; i > best && best < most_matched_; --i) {  // a match that ends before i
      const TokenId* match = tokens.data() + i;
      if (match[-1] != end[-1]) continue;
      int64_t matched = 1;
      while (matched < std::min(i, most_matched_) && match[-1 - matched] == end[-1 - matched]) ++matched;
      if (matched > best) best = matched, next = i;
    }
    return next;
  }

  int64_t most_matched_, least_matched_, drafted_;
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_ngram_drafter(const OptionValues& options) {
  const int64_t most = options.integer("n"), least = options.integer("min");
  if (least > most) return Error::user(fmt::format("min: must be at most n, which is {}, got {}", most, least));
  return std::unique_ptr<Drafter>(std::make_unique<Ngram>(most, least, options.integer("k")));
}

}  // namespace millrace
