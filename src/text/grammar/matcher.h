// GrammarMatcher: constrains one stream to a grammar. It computes the mask of allowed next tokens, accepts the sampled
// token, and supports rollback. Used by one thread at a time; copies are independent.
//
//   GrammarMatcher matcher(compiled);
//   matcher.mask(bits);                  // one bit per token, 1: allowed
//   if (matcher.accept(token)) ...
//   matcher.rollback(2);                 // undo the last two tokens
//
// A very ambiguous text may need more memory or work than one stream may use. exceeded() then reports the bound, no
// token is allowed, and the stream cannot continue. After rollback(), another continuation may be tried while work is
// left.
//
// A caller that must not wait long sets a slice of work for each call. A call whose work does not fit in its slice
// pauses; repeating it with a new slice continues the work:
//
//   matcher.set_slice(50'000);
//   const size_t allowed = matcher.mask(bits);
//   if (matcher.paused()) ...            // later: set_slice() and mask(bits) again, with unchanged bits
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

// A compiled grammar and the token masks of one vocabulary.
struct CompiledGrammar {
  std::shared_ptr<const Grammar> grammar;
  std::shared_ptr<TokenMasks> masks;
  int64_t id = 0;
  size_t table_bytes = size_t{16} << 20;  // bytes of one stream's parse table at which stale entries are dropped
  // Returns the peak bytes of the parse table while one token is processed.
  size_t most_bytes() const { return table_bytes + std::max(table_bytes, size_t{1} << 20); }
};

class GrammarMatcher {
 public:
  static constexpr size_t kMaxRollback = 1024;  // tokens
  // Work (see ParseTable) that a stream may do initially, about 0.2 seconds, and additionally per token, a few
  // milliseconds. Ordinary grammars use 1% of it.
  static constexpr int64_t kFirstWork = 200'000'000, kTokenWork = 4'000'000;

  // `begins`: compute the start of the grammar now; false: in the first call that needs it.
  explicit GrammarMatcher(CompiledGrammar compiled, bool begins = true);

  size_t words() const { return compiled_.masks->trie().words(); }
  // Sets bit token % 64 of bits[token / 64] for the allowed tokens and returns their number. End-of-generation ids are
  // not included; see complete().
  size_t mask(std::span<uint64_t> bits);
  bool allows(TokenId token);

  // Returns false and changes nothing if the token is not allowed.
  bool accept(TokenId token);
  bool accept_text(std::string_view text);  // accepts bytes; counts as one token
  // Undoes the last `tokens` tokens. Returns the number of undone tokens, which is limited by kMaxRollback, the number
  // of accepted tokens, and the history in memory.
  size_t rollback(size_t tokens);
  void reset();

  // Sets the work until mask(), accept() and allows() pause; unlimited by default. Results do not depend on slices. A
  // call that has paused had no visible effect and must be repeated; mask() must be repeated with unchanged bits.
  void set_slice(int64_t work) { table_.set_slice(work); }
  int64_t slice_left() const { return table_.slice_left(); }
  bool paused() const { return paused_; }

  // Returns the bound that the last mask(), allows(), accept() or jump_ahead() hit; the allowed tokens are then
  // unknown.
  ParseBound exceeded() const { return exceeded_; }

  bool complete() const { return table_.complete(set_); }                      // the text may end here
  bool exhausted() const { return complete() && !table_.can_continue(set_); }  // the text must end here
  // Returns the longest forced continuation, at most `limit` bytes. Its tokens need not be those of the final text,
  // whose tokenization may have a token across the end of the continuation.
  std::string jump_ahead(size_t limit = 4096);

  size_t bytes() const { return table_.bytes(); }

 private:
  static constexpr size_t kMaxMasks = 64;  // simultaneous parses whose masks are combined

  // A mask whose computation has paused. A copy of the matcher does not copy it and computes the mask from the
  // beginning.
  struct MaskProgress {
    std::vector<ParseConfig> configs;
    size_t config = 0, exit = 0;  // indices of the next configuration and exit
    bool whole = false;           // true: walks the whole vocabulary with the set instead
    std::shared_ptr<const StateMask> mask;
    std::shared_ptr<StateMaskWork> work;
    std::optional<TrieWalk> walk;
  };
  struct MaskInProgress {
    std::unique_ptr<MaskProgress> at;
    MaskInProgress() = default;
    MaskInProgress(const MaskInProgress&) {}
    MaskInProgress(MaskInProgress&&) = default;
    MaskInProgress& operator=(MaskInProgress other) {
      at = std::move(other.at);
      return *this;
    }
  };

  void advance(SetId set);
  void begin();
  bool usable();
  void note_bounds();
  bool deep() const;
  SetId after(std::string_view text);
  bool add_allowed(std::span<uint64_t> bits);
  bool add_state(ParseConfig config, std::span<uint64_t> bits);
  void add_mask(const StateMask& mask, ParseConfig config, std::span<uint64_t> bits);
  bool add_walk(uint32_t first, uint32_t last, SetId from, std::span<uint64_t> bits);
  void shrink();
  bool rebuild(bool with_history);

  CompiledGrammar compiled_;
  ParseTable table_;
  SetId set_;
  std::vector<SetId> history_;          // sets before the last tokens
  std::unordered_set<int32_t> masked_;  // states whose mask work has been charged
  ParseBound exceeded_ = ParseBound::none;
  bool begun_ = false, paused_ = false;
  bool forgets_ = false;  // true: the table is rebuilt without the history, which was too large
  MaskInProgress progress_;
};

}  // namespace millrace
