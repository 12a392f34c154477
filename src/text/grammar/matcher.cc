#include "text/grammar/matcher.h"

#include <algorithm>
#include <bit>

namespace millrace {
namespace {

void set_bit(std::span<uint64_t> bits, TokenId token) { bits[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64); }

}  // namespace

GrammarMatcher::GrammarMatcher(CompiledGrammar compiled) : compiled_(std::move(compiled)), table_(compiled_.grammar), set_(table_.begin()) {}

void GrammarMatcher::add_walk(uint32_t first, uint32_t last, SetId from, std::span<uint64_t> bits) {
  const TokenTrie& trie = compiled_.masks->trie();
  walk_trie(trie, table_, first, last, from, [&](uint32_t node, SetId) {
    for (TokenId token : trie.tokens(node)) set_bit(bits, token);
  });
}

// Adds what one configuration allows.
void GrammarMatcher::add_state(ParseConfig config, std::span<uint64_t> bits) {
  const Grammar& grammar = *compiled_.grammar;
  const ParseTable::Frame frame = table_.frame(config.frame);
  if (!grammar.moves(config.state)) return;
  const auto mask = compiled_.masks->find(compiled_.grammar, compiled_.id, config.state);
  const bool plain = !grammar.counted(config.state) || (frame.need == 0 && frame.room >= mask->most_ticks);
  if (plain) {
    for (size_t i = 0; i < mask->bits.size(); ++i) bits[i] |= mask->bits[i];
    for (TokenId token : mask->list) set_bit(bits, token);
  } else {
    std::vector<uint64_t> allowed = mask->bits;
    allowed.resize(bits.size(), 0);
    for (TokenId token : mask->list) set_bit(allowed, token);
    const auto clear = [&](TokenId token) { allowed[static_cast<size_t>(token) / 64] &= ~(uint64_t{1} << (token % 64)); };
    for (const StateMask::Counted& c : mask->counted_open) {
      if (c.open <= frame.room) break;
      clear(c.token);
    }
    for (const StateMask::Counted& c : mask->counted_exit) {
      const bool open = c.open != kNoTicks && c.open <= frame.room;
      const bool exit = frame.need <= c.exit && c.exit <= frame.room;
      if (!open && !exit) clear(c.token);
    }
    for (size_t i = 0; i < bits.size(); ++i) bits[i] |= allowed[i];
  }
  if (mask->exits.empty() || frame.kind != ParseTable::Frame::Kind::call) return;
  const SetId caller = table_.returned(config.frame);
  if (caller == kDead) return;
  const auto nodes = compiled_.masks->trie().nodes();
  for (const StateMask::Exit& exit : mask->exits) {
    if (grammar.counted(config.state) && (exit.ticks < frame.need || exit.ticks > frame.room)) continue;
    add_walk(exit.node + 1, nodes[exit.node].end, caller, bits);
  }
}

size_t GrammarMatcher::mask(std::span<uint64_t> bits) {
  std::ranges::fill(bits, 0);
  shrink();
  const std::vector<ParseConfig> configs(table_.configs(set_).begin(), table_.configs(set_).end());
  // Near the limit of depth what a state allows depends on the depth too.
  const bool deep = std::ranges::any_of(configs, [&](const ParseConfig& c) { return table_.frame(c.frame).depth + 2 * TokenTrie::kMaxTokenBytes > kMaxFrames; });
  if (deep) {
    add_walk(1, static_cast<uint32_t>(compiled_.masks->trie().nodes().size()), set_, bits);
  } else {
    for (const ParseConfig& config : configs) add_state(config, bits);
  }
  size_t count = 0;
  for (uint64_t word : bits) count += static_cast<size_t>(std::popcount(word));
  return count;
}

bool GrammarMatcher::allows(TokenId token) {
  if (token < 0 || token >= compiled_.masks->trie().vocab_size()) return false;
  const std::string_view text = compiled_.masks->trie().piece(token);
  SetId set = text.empty() ? kDead : set_;
  for (size_t i = 0; i < text.size() && set != kDead; ++i) set = table_.step(set, static_cast<uint8_t>(text[i]));
  return set != kDead;
}

bool GrammarMatcher::accept(TokenId token) {
  if (token < 0 || token >= compiled_.masks->trie().vocab_size()) return false;
  const std::string_view text = compiled_.masks->trie().piece(token);
  return !text.empty() && accept_text(text);
}

bool GrammarMatcher::accept_text(std::string_view text) {
  shrink();
  SetId set = set_;
  for (size_t i = 0; i < text.size() && set != kDead; ++i) set = table_.step(set, static_cast<uint8_t>(text[i]));
  if (set == kDead) return false;
  advance(set);
  return true;
}

void GrammarMatcher::advance(SetId set) {
  if (history_.size() >= 2 * kMostRollback) history_.erase(history_.begin(), history_.begin() + kMostRollback);
  history_.push_back(set_);
  set_ = set;
}

void GrammarMatcher::rollback(size_t tokens) {
  for (; tokens > 0 && !history_.empty(); --tokens) {
    set_ = history_.back();
    history_.pop_back();
  }
}

void GrammarMatcher::reset() {
  history_.clear();
  set_ = table_.begin();
}

// A table that grew large is made anew with what is still needed.
void GrammarMatcher::shrink() {
  if (table_.bytes() < compiled_.table_bytes) return;
  if (history_.size() > kMostRollback) history_.erase(history_.begin(), history_.end() - kMostRollback);
  ParseTable fresh(compiled_.grammar);
  set_ = fresh.import(table_, set_);
  for (SetId& set : history_) set = fresh.import(table_, set);
  if (fresh.bytes() > compiled_.table_bytes / 2) {  // the past alone is too large
    fresh = ParseTable(compiled_.grammar);
    history_.clear();
    set_ = fresh.import(table_, set_);
  }
  table_ = std::move(fresh);
}

std::string GrammarMatcher::jump_ahead(size_t limit) {
  std::string out;
  const Grammar& grammar = *compiled_.grammar;
  for (SetId set = set_; out.size() < limit && !table_.complete(set);) {
    int32_t only = -1;
    SetId next = kDead;
    for (int32_t c = 0; c < grammar.classes() && only != -2; ++c) {
      const SetId to = table_.step(set, grammar.sample(c));
      if (to == kDead) continue;
      only = only == -1 && grammar.single(c) ? c : -2;
      next = to;
    }
    if (only < 0) break;
    out += static_cast<char>(grammar.sample(only));
    set = next;
  }
  return out;
}

}  // namespace millrace
