#include "text/grammar/token_masks.h"

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

constexpr size_t kShortList = 1024;  // tokens; larger sets are stored as bits
constexpr size_t kMaxFingerprints = 4096;
constexpr int64_t kMaxMaskWork = 20'000'000;  // per state; beyond it there is no mask

}  // namespace

// The tick ranges with which a rule that began on a floor can end, one for each parse that is not subsumed by
// another.
class FloorTicks {
 public:
  explicit FloorTicks(ParseTable& table) : table_(table) {}

  const std::vector<TickRange>& ways(SetId set) {
    know(set);
    return sets_[static_cast<size_t>(set)].ways;
  }
  const std::vector<uint8_t>& exits(SetId set) {  // tick counts with which the rule can end here
    know(set);
    return sets_[static_cast<size_t>(set)].exits;
  }

 private:
  struct Known {
    bool known = false;
    std::vector<TickRange> ways;
    std::vector<uint8_t> exits;
  };

  // A parse subsumes others whose range lies within its own.
  static void add(std::vector<TickRange>& ways, TickRange way) {
    const auto within = [](const TickRange& a, const TickRange& b) { return a.least >= b.least && a.most <= b.most; };
    if (std::ranges::any_of(ways, [&](const TickRange& other) { return within(way, other); })) return;
    std::erase_if(ways, [&](const TickRange& other) { return within(other, way); });
    ways.push_back(way);
  }
  // Adds the ranges of a state that runs in, or returns to, the frame.
  void add_on(std::vector<TickRange>& ways, FrameId id, int32_t state) {
    const ParseTable::Frame& frame = table_.frame(id);
    if (frame.kind == ParseTable::Frame::Kind::floor)
      add(ways, table_.grammar().ticks_left(state).plus(frame.floor_ticks));
    else
      for (const TickRange& way : frames_[id]) add(ways, way);
    table_.spend(static_cast<int64_t>(ways.size()) + 1);
  }
  void know(SetId set) {
    for (auto id = static_cast<FrameId>(frames_.size()); id < table_.frames(); ++id) {
      std::vector<TickRange> ways;
      for (const FrameId parent : table_.parents(id)) add_on(ways, parent, table_.frame(id).to);
      frames_.push_back(std::move(ways));
    }
    if (static_cast<size_t>(set) >= sets_.size()) sets_.resize(static_cast<size_t>(set) + 1);
    Known& known = sets_[static_cast<size_t>(set)];
    if (std::exchange(known.known, true)) return;
    for (const ParseConfig& config : table_.configs(set)) {
      add_on(known.ways, config.frame, config.state);
      const ParseTable::Frame& frame = table_.frame(config.frame);
      if (frame.kind != ParseTable::Frame::Kind::floor || !table_.grammar().accepting(config.state)) continue;
      if (std::ranges::find(known.exits, frame.floor_ticks) == known.exits.end())
        known.exits.push_back(frame.floor_ticks);
    }
  }

  ParseTable& table_;
  std::vector<std::vector<TickRange>> frames_;  // [frame]
  std::vector<Known> sets_;                     // [set]
};

namespace {

// Records how tokens of a counted rule depend on the call. `now`: the range of the state, which fits the call.
void add_counted(StateMask& mask, std::span<const TokenId> tokens, const TickRange& now,
                 const std::vector<TickRange>& ways) {
  uint32_t least = kNoLimit;
  for (const TickRange& way : ways) least = std::min(least, way.least);
  const bool open = ways.size() == 1 && ways[0].most >= now.most;
  if (open && least <= now.least) return;
  mask.most_ticks = std::max(mask.most_ticks, least);
  for (const TokenId token : tokens) {
    if (open)
      mask.counted_open.push_back({token, least});
    else
      for (const TickRange& way : ways) mask.counted_some.push_back({token, way.least, way.most});
  }
}

}  // namespace

class StateMaskWork {
 public:
  StateMaskWork(const TokenTrie& trie, const std::shared_ptr<const Grammar>& grammar, int32_t state)
      : trie_(trie), state_(state), table_(grammar), floor_(table_) {
    table_.set_work(kMaxMaskWork);
  }
  StateMaskWork(const StateMaskWork&) = delete;

  // Returns false if there is more to do. `units`: reduced by the work done.
  bool run(int64_t& units) {
    table_.set_slice(units);
    const bool done = walk();
    units = table_.slice_left();
    return done;
  }
  StateMask take();

 private:
  bool walk() {
    if (!begun_) {
      const SetId from = table_.begin_on_floor(state_);
      if (table_.paused()) return false;
      walk_ = TrieWalk(trie_, 1, static_cast<uint32_t>(trie_.nodes().size()), from);
      begun_ = true;
    }
    return run_walk(trie_, table_, walk_, [this](uint32_t node, SetId set) { visit(node, set); });
  }
  void visit(uint32_t node, SetId set) {
    const bool counted = table_.grammar().counted(state_);
    const auto tokens = trie_.tokens(node);
    mask_.list.insert(mask_.list.end(), tokens.begin(), tokens.end());
    if (counted && !tokens.empty()) add_counted(mask_, tokens, table_.grammar().ticks_left(state_), floor_.ways(set));
    if (!table_.exits(set) || !trie_.has_children(node)) return;
    if (!counted) return mask_.exits.push_back({node, 0});
    for (const uint8_t ticks : floor_.exits(set)) {
      mask_.exits.push_back({node, ticks});
      mask_.most_ticks = std::max<uint32_t>(mask_.most_ticks, ticks);
    }
  }

  const TokenTrie& trie_;
  int32_t state_;
  ParseTable table_;
  FloorTicks floor_;
  TrieWalk walk_;
  bool begun_ = false;
  StateMask mask_;
};

StateMask StateMaskWork::take() {
  StateMask mask;
  if (table_.exceeded() == ParseBound::none) mask = std::move(mask_);
  mask.exceeded = table_.exceeded();
  mask.work = kMaxMaskWork - std::max<int64_t>(0, table_.work_left());
  std::ranges::stable_sort(mask.counted_open, [](const auto& a, const auto& b) { return a.ticks > b.ticks; });
  if (mask.list.size() <= kShortList) {
    mask.list.shrink_to_fit();
    return mask;
  }
  mask.bits.assign(trie_.words(), 0);
  for (TokenId token : mask.list) mask.bits[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
  mask.list = {};
  return mask;
}

TokenMasks::TokenMasks(std::vector<std::string> pieces, size_t limit_bytes)
    : trie_(pieces), limit_bytes_(limit_bytes) {}

uint64_t TokenMasks::key_of(const Grammar& grammar, int64_t grammar_id, int32_t state) {
  const std::string& fingerprint = grammar.fingerprint(state);
  if (!fingerprint.empty()) {
    auto found = rules_.find(fingerprint);
    if (found == rules_.end() && rules_.size() < kMaxFingerprints)
      found = rules_.emplace(fingerprint, ++grammars_).first;
    if (found != rules_.end())
      return static_cast<uint64_t>(found->second) << 24 | static_cast<uint32_t>(grammar.state_in_rule(state));
  }
  return static_cast<uint64_t>(grammar_id) << 24 | static_cast<uint32_t>(state);
}

std::shared_ptr<const StateMask> TokenMasks::find(const std::shared_ptr<const Grammar>& grammar, int64_t grammar_id,
                                                  int32_t state) {
  std::shared_ptr<StateMaskWork> work;
  int64_t units = INT64_MAX;
  return find(grammar, grammar_id, state, work, units);
}

std::shared_ptr<const StateMask> TokenMasks::find(const std::shared_ptr<const Grammar>& grammar, int64_t grammar_id,
                                                  int32_t state, std::shared_ptr<StateMaskWork>& work, int64_t& units) {
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
  if (!work) work = std::make_shared<StateMaskWork>(trie_, grammar, state);
  if (!work->run(units)) return nullptr;
  auto mask = std::make_shared<const StateMask>(work->take());
  std::lock_guard lock(mutex_);
  ++computed_;
  if (auto found = entries_.find(key); found != entries_.end()) return found->second.mask;  // another thread was faster
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
