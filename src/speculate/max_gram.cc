#include "speculate/max_gram.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr int64_t kLongestMatch = 16;   // tokens that are compared
constexpr int64_t kMinMatch = 2;        // a shorter one says less than the bigrams of all texts
constexpr int64_t kMaxLookedAt = 8192;  // of the text's last tokens

uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t bigram_key(const Sequence& s, TokenId token) {
  const uint64_t text = s.prefix.caches ? mixed(s.prefix.scope + 1) : ~mixed(s.id + 1);
  return std::max<uint64_t>(1, mixed(text + static_cast<uint64_t>(token)));
}

// The index behind the longest match of the text's last tokens, the latest of equal ones; 0: none.
int64_t longest_match(const Sequence& s, int64_t size) {
  int64_t best = kMinMatch - 1, next = 0;
  const int64_t end = std::max<int64_t>(1, size - kMaxLookedAt);
  for (int64_t i = size - 1; i >= end && best < kLongestMatch; --i) {
    if (s.token_at(i - 1) != s.token_at(size - 1)) continue;
    int64_t matched = 1;
    while (matched < std::min(i, kLongestMatch) && s.token_at(i - 1 - matched) == s.token_at(size - 1 - matched))
      ++matched;
    if (matched > best) best = matched, next = i;
  }
  return next;
}

}  // namespace

// Of the tokens that follow one, the entry keeps the one that holds a majority, if any does (Boyer and Moore, 1991); a
// token with the same place takes it once it is seen as often.
void MaxGram::read(const Sequence& stream, int64_t from) {
  if (table_.empty()) table_.resize(static_cast<size_t>(entries_));
  for (int64_t i = std::max<int64_t>(1, from); i < stream.size(); ++i) {
    const uint64_t key = bigram_key(stream, stream.tokens[static_cast<size_t>(i - 1)]);
    const TokenId next = stream.tokens[static_cast<size_t>(i)];
    Entry& entry = entry_of(key);
    if (entry.key == key && entry.next == next)
      ++entry.count;
    else if (--entry.count <= 0)
      entry = {key, next, 1};
  }
}

int64_t MaxGram::guess(Sequence& stream, int64_t drafted, int64_t most) {
  const int64_t size = stream.size() + drafted;
  int64_t match = longest_match(stream, size), guessed = 0;
  for (; guessed < most; ++guessed) {
    TokenId& out = stream.draft.tokens[static_cast<size_t>(drafted + guessed)];
    if (match > 0) {
      out = stream.token_at(match++);  // a match near the end goes on with what was guessed
      continue;
    }
    if (table_.empty()) break;
    const uint64_t key = bigram_key(stream, stream.token_at(size + guessed - 1));
    const Entry& entry = entry_of(key);
    if (entry.key != key) break;
    out = entry.next;
  }
  return guessed;
}

}  // namespace millrace
