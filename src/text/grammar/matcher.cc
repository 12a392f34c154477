#include "text/grammar/matcher.h"

#include <algorithm>
#include <bit>

namespace millrace {
namespace {

void set_bit(std::span<uint64_t> bits, TokenId token) {
  bits[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
}

}  // namespace

GrammarMatcher::GrammarMatcher(CompiledGrammar compiled)
    : compiled_(std::move(compiled)), table_(compiled_.grammar, compiled_.most_bytes()), set_(kDead) {
  reset();
}

// Whether the stream can continue. A depth error concerns only the token that caused it, so it is cleared.
bool GrammarMatcher::usable() {
  if (exceeded_ == ParseBound::depth) exceeded_ = ParseBound::none;
  if (exceeded_ == ParseBound::none) shrink();
  return exceeded_ == ParseBound::none;
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

// The set after more text; kDead if the text is not allowed or a bound is hit.
SetId GrammarMatcher::after(std::string_view text) {
  SetId set = set_;
  for (size_t i = 0; i < text.size() && set != kDead; ++i) set = table_.step(set, static_cast<uint8_t>(text[i]));
  table_.spend(static_cast<int64_t>(text.size()));
  note_bounds();
  if (exceeded_ != ParseBound::none) return kDead;
  if (set == kDead && table_.dropped() && deep()) exceeded_ = ParseBound::depth;
  return set;
}

void GrammarMatcher::add_walk(uint32_t first, uint32_t last, SetId from, std::span<uint64_t> bits) {
  const TokenTrie& trie = compiled_.masks->trie();
  walk_trie(trie, table_, first, last, from, [&](uint32_t node, SetId) {
    for (TokenId token : trie.tokens(node)) set_bit(bits, token);
  });
}

// Adds the tokens that one configuration allows. Returns false if there is no mask for its state.
bool GrammarMatcher::add_state(ParseConfig config, std::span<uint64_t> bits) {
  const Grammar& grammar = *compiled_.grammar;
  const ParseTable::Frame frame = table_.frame(config.frame);
  if (!grammar.moves(config.state)) return true;
  const auto mask = compiled_.masks->find(compiled_.grammar, compiled_.id, config.state);
  // Charged once per stream even on a cache hit, so that the outcome does not depend on other streams.
  if (masked_.insert(config.state).second) table_.spend(mask->work);
  if (mask->exceeded != ParseBound::none) return false;
  table_.spend(static_cast<int64_t>(bits.size()) / 4);
  const bool plain = !grammar.counted(config.state) || (frame.need == 0 && frame.room >= mask->most_ticks);
  if (plain) {
    for (size_t i = 0; i < mask->bits.size(); ++i) bits[i] |= mask->bits[i];
    for (TokenId token : mask->list) set_bit(bits, token);
  } else {
    std::vector<uint64_t> allowed = mask->bits;
    allowed.resize(bits.size(), 0);
    for (TokenId token : mask->list) set_bit(allowed, token);
    const auto clear = [&](TokenId token) {
      allowed[static_cast<size_t>(token) / 64] &= ~(uint64_t{1} << (token % 64));
    };
    for (const StateMask::Least& c : mask->counted_open) {
      if (c.ticks <= frame.room) break;
      clear(c.token);
    }
    const auto& some = mask->counted_some;
    for (size_t i = 0; i < some.size();) {
      const TokenId token = some[i].token;
      bool fits = false;
      for (; i < some.size() && some[i].token == token; ++i)
        fits |= TickRange{some[i].least, some[i].most}.meets(frame.need, frame.room);
      if (!fits) clear(token);
    }
    for (size_t i = 0; i < bits.size(); ++i) bits[i] |= allowed[i];
  }
  if (mask->exits.empty() || frame.kind != ParseTable::Frame::Kind::call) return true;
  const SetId caller = table_.returned(config.frame);
  if (caller == kDead) return true;
  const auto nodes = compiled_.masks->trie().nodes();
  for (const StateMask::Exit& exit : mask->exits) {
    if (grammar.counted(config.state) && (exit.ticks < frame.need || exit.ticks > frame.room)) continue;
    add_walk(exit.node + 1, nodes[exit.node].end, caller, bits);
  }
  return true;
}

size_t GrammarMatcher::mask(std::span<uint64_t> bits) {
  std::ranges::fill(bits, 0);
  if (!usable()) return 0;
  const std::vector<ParseConfig> configs(table_.configs(set_).begin(), table_.configs(set_).end());
  bool walk = configs.size() > kMaxMasks || deep();
  for (size_t i = 0; i < configs.size() && !walk && table_.exceeded() == ParseBound::none; ++i)
    walk = !add_state(configs[i], bits);
  if (walk) add_walk(1, static_cast<uint32_t>(compiled_.masks->trie().nodes().size()), set_, bits);
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
  exceeded_ = ParseBound::none;
  table_.clear_exceeded();
  table_.set_work(kFirstWork);
  set_ = table_.begin();
  note_bounds();
}

// Rebuilds a table that has grown large with only the sets still needed.
void GrammarMatcher::shrink() {
  if (table_.bytes() < compiled_.table_bytes) return;
  if (history_.size() > kMaxRollback) history_.erase(history_.begin(), history_.end() - kMaxRollback);
  const auto remade = [&](bool with_history) {
    ParseTable fresh(compiled_.grammar, compiled_.most_bytes());
    fresh.set_work(kFirstWork);
    std::vector<SetId> sets{set_};
    if (with_history) sets.insert(sets.end(), history_.begin(), history_.end());
    fresh.import(table_, sets);
    table_.spend(kFirstWork - std::max<int64_t>(0, fresh.work_left()));
    if (with_history && (fresh.exceeded() != ParseBound::none || fresh.bytes() > compiled_.table_bytes / 2))
      return false;
    fresh.set_work(std::max<int64_t>(0, table_.work_left()));
    table_ = std::move(fresh);
    set_ = sets[0];
    history_.assign(sets.begin() + 1, sets.end());
    return true;
  };
  if (!remade(true)) remade(false);  // drop the history
  note_bounds();
  if (table_.bytes() > (compiled_.table_bytes + compiled_.most_bytes()) / 2 && exceeded_ == ParseBound::none)
    exceeded_ = ParseBound::bytes;  // the current set alone is too large
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
