// StreamDrafts: the engine's data about the drafts of one stream: for each drafter its memory, how much of its drafts
// was right, and its latest draft, until the stream's tokens confirm or refute it. So a draft that did not run, ran
// only in part, or belongs to a drafter that was not chosen, is judged as well.
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
  // Begins with a draft that follows the stream's present tokens.
  void begin(const Draft& draft, const Sequence& stream) {
    draft_ = draft;
    from_ = stream.size();
    depth_ = 0;
    at_ = -1;
    open_ = draft.candidates(draft.size()) > 0;
  }
  // Compares the draft with the tokens that the stream has had since: record(place, kept) for each that is known now.
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
  int64_t from_ = 0;   // the stream's tokens before the draft
  int64_t depth_ = 0;  // compared tokens
  int64_t at_ = -1;    // the drafted token that was the last right one
  bool open_ = false;
};

struct StreamDrafts {
  struct Member {
    std::shared_ptr<DraftMemory> memory;
    KeptShares shares;
    DraftTrial trial;
  };
  std::vector<Member> members;  // by drafter; behind them the prediction of a request that has one
  size_t chosen = 0;            // whose draft is the stream's
};

}  // namespace millrace
