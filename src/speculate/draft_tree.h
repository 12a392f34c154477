// Builds a tree of drafted tokens, in which continuations that begin with the same tokens share them.
#pragma once

#include <span>

#include "flow/batch.h"
#include "flow/sequence.h"

namespace millrace {

// Returns the index of the drafted token that follows `at` (-1: the stream's last token) and equals `token`; -1: none.
inline int64_t child_of(const Draft& draft, int64_t at, TokenId token) {
  for (int64_t i = at + 1; i < draft.size(); ++i)
    if (draft.parents[static_cast<size_t>(i)] == at && draft.tokens[static_cast<size_t>(i)] == token) return i;
  return -1;
}

// Adds a continuation of the stream, until the draft has `most` tokens. Returns the number of tokens added.
inline int64_t add_branch(Draft& draft, std::span<const TokenId> branch, int64_t most) {
  int64_t at = -1, added = 0;
  for (const TokenId token : branch) {
    int64_t next = child_of(draft, at, token);
    if (next < 0) {
      if (draft.size() >= most) break;
      draft.tokens.push_back(token);
      draft.parents.push_back(static_cast<int32_t>(at));
      next = draft.size() - 1;
      ++added;
    }
    at = next;
  }
  return added;
}

// Returns true if the draft contains the whole continuation.
inline bool has_branch(const Draft& draft, std::span<const TokenId> branch) {
  int64_t at = -1;
  for (const TokenId token : branch)
    if ((at = child_of(draft, at, token)) < 0) return false;
  return true;
}

}  // namespace millrace
