// StreamDrafts: the engine's data about the drafts of one stream. For each drafter it holds the drafter's memory, the
// share of its drafted tokens that were right, and its latest draft. DraftTrial: compares a draft with the stream's
// later tokens. So a draft is judged even if it did not run, ran only in part, or belongs to a drafter that was not
// chosen.
#pragma once

#include <memory>
#include <vector>

#include "flow/sequence.h"
#include "speculate/kept_shares.h"

namespace millrace {

class DraftTrial {
 public:
  void reserve(int64_t tokens, bool tree) {
    draft_.tokens.reserve(static_cast<size_t>(tokens));
    if (tree) draft_.parents.reserve(static_cast<size_t>(tokens));
  }
  bool open() const { return open_; }
  // Begins with a draft that follows the stream's current tokens.
  void begin(const Draft& draft, const Sequence& stream) {
    draft_ = draft;
    from_ = stream.size();
    depth_ = 0;
    at_ = -1;
    open_ = draft.candidates(draft.size()) > 0;
  }
  // Compares the draft with the stream's new tokens. Calls record(place, kept) for each place of the draft that is now
  // decided.
  template <typename Record>
  void follow(const Sequence& stream, Record record) {
    while (open_ && from_ + depth_ < stream.size()) {
      const TokenId token = stream.tokens[static_cast<size_t>(from_ + depth_)];
      int64_t next = -1;
      bool drafted = false;
      for (int64_t i = at_ + 1; i < draft_.candidates(draft_.size()) && next < 0; ++i) {
        if (draft_.parent(i) != at_) continue;
        drafted = true;
        if (draft_.tokens[static_cast<size_t>(i)] == token) next = i;
      }
      open_ = next >= 0;
      if (drafted) record(depth_, open_);
      at_ = next;
      ++depth_;
    }
  }

 private:
  Draft draft_;
  int64_t from_ = 0;   // number of the stream's tokens before the draft
  int64_t depth_ = 0;  // number of compared tokens
  int64_t at_ = -1;    // index of the last drafted token that was right
  bool open_ = false;
};

struct StreamDrafts {
  struct Member {
    std::shared_ptr<DraftMemory> memory;
    KeptShares shares;
    DraftTrial trial;
  };
  std::vector<Member> members;  // one for each drafter, then one for the prediction if the request has one
  size_t chosen = 0;            // index of the member whose draft the stream uses
};

}  // namespace millrace
