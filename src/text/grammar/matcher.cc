#include "text/grammar/matcher.h"

#include <algorithm>
#include <bit>

namespace millrace {
namespace {

void set_bit(std::span<uint64_t> bits, TokenId token) {
  bits[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
}

}  // namespace

GrammarMatcher::GrammarMatcher(CompiledGrammar compiled, bool begins)
    : compiled_(std::move(compiled)), table_(compiled_.grammar, compiled_.most_bytes()), set_(kDead) {
  table_.set_work(kFirstWork);
  if (begins) begin();
}

void GrammarMatcher::begin() {
  set_ = table_.begin();
  paused_ = table_.paused();
  if (paused_) return;
  begun_ = true;
  note_bounds();
}

// Whether the call can go on: it does not pause, and the stream can continue. A depth error concerns only the token
// that caused it, so it is cleared.
bool GrammarMatcher::usable() {
  paused_ = false;
  progress_ = {};
  if (exceeded_ == ParseBound::depth) exceeded_ = ParseBound::none;
  if (exceeded_ == ParseBound::none && !begun_) begin();
  if (exceeded_ == ParseBound::none && !paused_) shrink();
  return exceeded_ == ParseBound::none && !paused_;
}

void GrammarMatcher::note_bounds() {
  if (exceeded_ == ParseBound::none) exceeded_ = table_.exceeded();
  table_.clear_exceeded();
  if (table_.work_left() < 0) table_.set_work(0);
}

// Near the depth limit the allowed tokens depend on the depth too, so that masks do not apply.
bool GrammarMatcher::deep() const {
  return std::ranges::any_of(table_.configs(set_), [&](const ParseConfig& c) {
    return table_.frame(c.frame).depth + 2 * TokenTrie::kMaxTokenBytes > kMaxFrames;
  });
}

// The set after more text; kDead if the text is not allowed, a bound is hit or the call pauses.
SetId GrammarMatcher::after(std::string_view text) {
  SetId set = set_;
  for (size_t i = 0; i < text.size() && set != kDead; ++i) set = table_.step(set, static_cast<uint8_t>(text[i]));
  paused_ = set == kDead && table_.paused();
  if (paused_) return kDead;
  table_.spend(static_cast<int64_t>(text.size()));
  note_bounds();
  if (exceeded_ != ParseBound::none) return kDead;
  if (set == kDead && table_.dropped() && deep()) exceeded_ = ParseBound::depth;
  return set;
}

// This and the following return false if the table has paused.
bool GrammarMatcher::add_walk(uint32_t first, uint32_t last, SetId from, std::span<uint64_t> bits) {
  const TokenTrie& trie = compiled_.masks->trie();
  std::optional<TrieWalk>& walk = progress_.at->walk;
  if (!walk) walk.emplace(trie, first, last, from);
  const bool done = run_walk(trie, table_, *walk, [&](uint32_t node, SetId) {
    for (TokenId token : trie.tokens(node)) set_bit(bits, token);
  });
  if (done) walk.reset();
  return done;
}

// Adds the tokens of a mask, whose counts fit the configuration's frame.
void GrammarMatcher::add_mask(const StateMask& mask, ParseConfig config, std::span<uint64_t> bits) {
  const ParseTable::Frame frame = table_.frame(config.frame);
  const bool plain = !compiled_.grammar->counted(config.state) || (frame.need == 0 && frame.room >= mask.most_ticks);
  if (plain) {
    for (size_t i = 0; i < mask.bits.size(); ++i) bits[i] |= mask.bits[i];
    for (TokenId token : mask.list) set_bit(bits, token);
    return;
  }
  std::vector<uint64_t> allowed = mask.bits;
  allowed.resize(bits.size(), 0);
  for (TokenId token : mask.list) set_bit(allowed, token);
  const auto clear = [&](TokenId token) { allowed[static_cast<size_t>(token) / 64] &= ~(uint64_t{1} << (token % 64)); };
  for (const StateMask::Least& c : mask.counted_open) {
    if (c.ticks <= frame.room) break;
    clear(c.token);
  }
  const auto& some = mask.counted_some;
  for (size_t i = 0; i < some.size();) {
    const TokenId token = some[i].token;
    bool fits = false;
    for (; i < some.size() && some[i].token == token; ++i)
      fits |= TickRange{some[i].least, some[i].most}.meets(frame.need, frame.room);
    if (!fits) clear(token);
  }
  for (size_t i = 0; i < bits.size(); ++i) bits[i] |= allowed[i];
}

// Adds the tokens that one configuration allows. If there is no mask for its state, the whole vocabulary is to be
// walked.
bool GrammarMatcher::add_state(ParseConfig config, std::span<uint64_t> bits) {
  const Grammar& grammar = *compiled_.grammar;
  MaskProgress& p = *progress_.at;
  const ParseTable::Frame frame = table_.frame(config.frame);
  if (!grammar.moves(config.state)) return true;
  if (!p.mask) {
    int64_t left = table_.slice_left();
    p.mask = compiled_.masks->find(compiled_.grammar, compiled_.id, config.state, p.work, left);
    table_.use_slice(table_.slice_left() - left);
    if (!p.mask) return false;
    p.work.reset();
    // Charged once per stream even on a cache hit, so that the outcome does not depend on other streams.
    if (masked_.insert(config.state).second) table_.charge(p.mask->work);
    p.whole = p.mask->exceeded != ParseBound::none;
    if (p.whole) return true;
    table_.spend(static_cast<int64_t>(bits.size()) / 4);
    add_mask(*p.mask, config, bits);
  }
  const StateMask& mask = *p.mask;
  if (mask.exits.empty() || frame.kind != ParseTable::Frame::Kind::call) return true;
  const SetId caller = table_.returned(config.frame);
  if (caller == kDead) return !table_.paused();
  const auto nodes = compiled_.masks->trie().nodes();
  for (; p.exit < mask.exits.size(); ++p.exit) {
    const StateMask::Exit& exit = mask.exits[p.exit];
    if (grammar.counted(config.state) && (exit.ticks < frame.need || exit.ticks > frame.room)) continue;
    if (table_.paused()) return false;
    if (!add_walk(exit.node + 1, nodes[exit.node].end, caller, bits)) return false;
  }
  return true;
}

bool GrammarMatcher::add_allowed(std::span<uint64_t> bits) {
  MaskProgress& p = *progress_.at;
  while (p.config < p.configs.size() && !p.whole && table_.exceeded() == ParseBound::none) {
    if (table_.paused()) return false;
    if (!add_state(p.configs[p.config], bits)) return false;
    p.mask.reset();
    p.exit = 0;
    ++p.config;
  }
  return !p.whole || add_walk(1, static_cast<uint32_t>(compiled_.masks->trie().nodes().size()), set_, bits);
}

size_t GrammarMatcher::mask(std::span<uint64_t> bits) {
  if (!progress_.at) {
    std::ranges::fill(bits, 0);
    if (!usable()) return 0;
    progress_.at = std::make_unique<MaskProgress>();
    progress_.at->configs.assign(table_.configs(set_).begin(), table_.configs(set_).end());
    progress_.at->whole = progress_.at->configs.size() > kMaxMasks || deep();
  }
  paused_ = !add_allowed(bits);
  if (paused_) return 0;
  progress_ = {};
  note_bounds();
  if (exceeded_ != ParseBound::none) std::ranges::fill(bits, 0);
  size_t count = 0;
  for (uint64_t word : bits) count += static_cast<size_t>(std::popcount(word));
  // Every parse can be continued, so if no token is allowed, all continuations are too deep in this vocabulary.
  if (count == 0 && exceeded_ == ParseBound::none && table_.dropped() && !complete()) exceeded_ = ParseBound::depth;
  return count;
}

bool GrammarMatcher::allows(TokenId token) {
  if (token < 0 || token >= compiled_.masks->trie().vocab_size()) return false;
  const std::string_view text = compiled_.masks->trie().piece(token);
  return !text.empty() && usable() && after(text) != kDead;
}

bool GrammarMatcher::accept(TokenId token) {
  if (token < 0 || token >= compiled_.masks->trie().vocab_size()) return false;
  const std::string_view text = compiled_.masks->trie().piece(token);
  return !text.empty() && accept_text(text);
}

bool GrammarMatcher::accept_text(std::string_view text) {
  if (!usable()) return false;
  const SetId set = after(text);
  if (set == kDead) return false;
  advance(set);
  table_.set_work(std::min(kFirstWork, table_.work_left() + kTokenWork));
  return true;
}

void GrammarMatcher::advance(SetId set) {
  if (history_.size() >= 2 * kMaxRollback) history_.erase(history_.begin(), history_.begin() + kMaxRollback);
  history_.push_back(set_);
  set_ = set;
}

size_t GrammarMatcher::rollback(size_t tokens) {
  progress_ = {};
  size_t taken = 0;
  for (; taken < tokens && !history_.empty(); ++taken) {
    set_ = history_.back();
    history_.pop_back();
    exceeded_ = ParseBound::none;
  }
  return taken;
}

void GrammarMatcher::reset() {
  history_.clear();
  masked_.clear();
  progress_ = {};
  exceeded_ = ParseBound::none;
  table_.clear_exceeded();
  table_.set_work(kFirstWork);
  begun_ = false;
  begin();
}

// Rebuilds a table that has grown large with only the sets still needed.
void GrammarMatcher::shrink() {
  if (table_.bytes() < compiled_.table_bytes) return;
  if (history_.size() > kMaxRollback) history_.erase(history_.begin(), history_.end() - kMaxRollback);
  forgets_ = forgets_ || (!rebuild(true) && !paused_);
  if (forgets_) rebuild(false);
  if (paused_) return;
  forgets_ = false;
  note_bounds();
  if (table_.bytes() > (compiled_.table_bytes + compiled_.most_bytes()) / 2 && exceeded_ == ParseBound::none)
    exceeded_ = ParseBound::bytes;  // the current set alone is too large
}

// Returns false, and changes nothing, if it pauses or the history is too large.
bool GrammarMatcher::rebuild(bool with_history) {
  ParseTable fresh(compiled_.grammar, compiled_.most_bytes());
  fresh.set_work(kFirstWork);
  fresh.set_slice(table_.slice_left());
  std::vector<SetId> sets{set_};
  if (with_history) sets.insert(sets.end(), history_.begin(), history_.end());
  fresh.import(table_, sets);
  paused_ = fresh.paused();
  if (paused_) return false;
  table_.spend(kFirstWork - std::max<int64_t>(0, fresh.work_left()));
  if (with_history && (fresh.exceeded() != ParseBound::none || fresh.bytes() > compiled_.table_bytes / 2)) return false;
  fresh.set_work(std::max<int64_t>(0, table_.work_left()));
  fresh.set_slice(table_.slice_left());
  table_ = std::move(fresh);
  set_ = sets[0];
  history_.assign(sets.begin() + 1, sets.end());
  return true;
}

std::string GrammarMatcher::jump_ahead(size_t limit) {
  std::string out;
  if (!usable()) return out;
  const Grammar& grammar = *compiled_.grammar;
  for (SetId set = set_; out.size() < limit && !table_.complete(set);) {
    int32_t only = -1;
    SetId next = kDead;
    table_.spend(grammar.classes());
    for (int32_t c = 0; c < grammar.classes() && only != -2; ++c) {
      const SetId to = table_.step(set, grammar.sample(c));
      if (to == kDead) continue;
      only = only == -1 && grammar.single(c) ? c : -2;
      next = to;
    }
    if (only < 0 || table_.exceeded() != ParseBound::none) break;
    out += static_cast<char>(grammar.sample(only));
    set = next;
  }
  note_bounds();
  return out;
}

}  // namespace millrace
