#include "text/grammar/token_masks.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr size_t kShortList = 1024;       // tokens; more are kept as bits
constexpr size_t kMostFingerprints = 4096;
constexpr int64_t kMostWork = 20'000'000;  // for one state; beyond it there is no mask

StateMask compute(const TokenTrie& trie, const std::shared_ptr<const Grammar>& grammar, int32_t state) {
  ParseTable table(grammar);
  table.set_work(kMostWork);
  StateMask mask;
  const bool counted = grammar->counted(state);
  walk_trie(trie, table, 1, static_cast<uint32_t>(trie.nodes().size()), table.begin_on_floor(state), [&](uint32_t node, SetId set) {
    const uint8_t open = table.open_ticks(set), exit = table.exit_ticks(set);
    if (exit != kNoTicks && trie.has_children(node)) mask.exits.push_back({node, exit});
    for (TokenId token : trie.tokens(node)) {
      mask.list.push_back(token);
      if (counted && exit != kNoTicks)
        mask.counted_exit.push_back({token, open, exit});
      else if (counted && open != 0)
        mask.counted_open.push_back({token, open, exit});
    }
    if (counted && open != kNoTicks) mask.most_ticks = std::max(mask.most_ticks, open);
    if (counted && exit != kNoTicks) mask.most_ticks = std::max(mask.most_ticks, exit);
  });
  if (table.exceeded() != ParseBound::none) mask = {};
  mask.exceeded = table.exceeded();
  mask.work = kMostWork - std::max<int64_t>(0, table.work_left());
  std::ranges::stable_sort(mask.counted_open, [](const auto& a, const auto& b) { return a.open > b.open; });
  if (mask.list.size() <= kShortList) {
    mask.list.shrink_to_fit();
    return mask;
  }
  mask.bits.assign(trie.words(), 0);
  for (TokenId token : mask.list) mask.bits[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
  mask.list = {};
  return mask;
}

}  // namespace

TokenMasks::TokenMasks(std::vector<std::string> pieces, size_t limit_bytes) : trie_(pieces), limit_bytes_(limit_bytes) {}

uint64_t TokenMasks::key_of(const Grammar& grammar, int64_t grammar_id, int32_t state) {
  const std::string& fingerprint = grammar.fingerprint(state);
  if (!fingerprint.empty()) {
    auto found = rules_.find(fingerprint);
    if (found == rules_.end() && rules_.size() < kMostFingerprints) found = rules_.emplace(fingerprint, ++grammars_).first;
    if (found != rules_.end()) return static_cast<uint64_t>(found->second) << 24 | static_cast<uint32_t>(grammar.state_in_rule(state));
  }
  return static_cast<uint64_t>(grammar_id) << 24 | static_cast<uint32_t>(state);
}

std::shared_ptr<const StateMask> TokenMasks::find(const std::shared_ptr<const Grammar>& grammar, int64_t grammar_id, int32_t state) {
  uint64_t key;
  {
    std::lock_guard lock(mutex_);
    key = key_of(*grammar, grammar_id, state);
    auto found = entries_.find(key);
    if (found != entries_.end()) {
      uses_.splice(uses_.begin(), uses_, found->second.use);
      return found->second.mask;
    }
  }
  auto mask = std::make_shared<const StateMask>(compute(trie_, grammar, state));
  std::lock_guard lock(mutex_);
  ++computed_;
  if (auto found = entries_.find(key); found != entries_.end()) return found->second.mask;  // another thread was first
  uses_.push_front(key);
  entries_.emplace(key, Entry{mask, uses_.begin()});
  bytes_ += mask->bytes();
  while (bytes_ > limit_bytes_ && uses_.size() > 1) {
    auto last = entries_.find(uses_.back());
    bytes_ -= last->second.mask->bytes();
    entries_.erase(last);
    uses_.pop_back();
  }
  return mask;
}

size_t TokenMasks::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

int64_t TokenMasks::computed() const {
  std::lock_guard lock(mutex_);
  return computed_;
}

}  // namespace millrace
