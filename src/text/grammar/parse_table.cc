#include "text/grammar/parse_table.h"

#include <algorithm>

namespace millrace {
namespace {

uint64_t mix(uint64_t h, uint64_t x) {
  h = (h ^ x) * 0x9E3779B97F4A7C15ull;
  return h ^ h >> 31;
}

}  // namespace

const char* parse_bound_reason(ParseBound bound) {
  switch (bound) {
    case ParseBound::none: return "";
    case ParseBound::readings: return "the text has too many parses at once; make the rules less ambiguous";
    case ParseBound::depth: return "the rules are nested too deeply at this point; nest them less";
    case ParseBound::bytes: return "parsing the text takes too much memory; make the rules less ambiguous";
    case ParseBound::work: return "parsing the text takes too long; make the rules less ambiguous";
  }
  return "";
}

ParseTable::ParseTable(std::shared_ptr<const Grammar> grammar, size_t most_bytes)
    : grammar_(std::move(grammar)), classes_(static_cast<size_t>(grammar_->classes())), most_bytes_(most_bytes) {
  Frame root;
  root.kind = Frame::Kind::root;
  intern_frame(root, {});
  sets_.emplace_back();  // kDead
  next_.assign(classes_, kDead);
}

// What was computed; kDead if it is incomplete. Work of what a pause has cut off is not charged: it is done again.
SetId ParseTable::kept(SetId set, int64_t work_before) {
  if (paused()) work_left_ = work_before;
  return stopped() ? kDead : set;
}

SetId ParseTable::begin() {
  const int64_t before = work_left_;
  work_.clear();
  add({grammar_->start(), 0});
  return kept(close(), before);
}

SetId ParseTable::begin_on_floor(int32_t state) {
  const int64_t before = work_left_;
  Frame floor;
  floor.kind = Frame::Kind::floor;
  const FrameId id = intern_frame(floor, {});
  work_.clear();
  add({state, id});
  return kept(close(), before);
}

FrameId ParseTable::intern_frame(Frame frame, std::span<const FrameId> parents) {
  uint64_t hash = mix(mix(static_cast<uint64_t>(frame.kind), static_cast<uint32_t>(frame.to)),
                      uint64_t{frame.need} << 32 | frame.room);
  hash = mix(hash, frame.kind == Frame::Kind::floor ? frame.floor_ticks : 0);
  for (FrameId parent : parents) hash = mix(hash, parent);
  spend(kSetWork + static_cast<int64_t>(parents.size()));
  if (bytes() > most_bytes_) exceed(ParseBound::bytes);
  const auto [first, last] = frame_ids_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const Frame& other = frames_[it->second];
    if (other.kind == frame.kind && other.to == frame.to && other.need == frame.need && other.room == frame.room &&
        (frame.kind != Frame::Kind::floor || other.floor_ticks == frame.floor_ticks) &&
        std::ranges::equal(this->parents(it->second), parents))
      return it->second;
  }
  if (frame.kind == Frame::Kind::call) {
    frame.depth = 0;
    for (FrameId parent : parents)
      frame.depth = std::max(frame.depth, static_cast<uint16_t>(frames_[parent].depth + 1));
  }
  frame.first = static_cast<uint32_t>(parents_.size());
  frame.count = static_cast<uint32_t>(parents.size());
  parents_.insert(parents_.end(), parents.begin(), parents.end());
  const auto id = static_cast<FrameId>(frames_.size());
  frames_.push_back(frame);
  returned_.push_back(kUnknown);
  frame_ids_.emplace(hash, id);
  return id;
}

SetId ParseTable::intern_set(std::span<const ParseConfig> configs) {
  if (configs.empty()) return kDead;
  spend(kSetWork + static_cast<int64_t>(classes_) / 4);
  if (bytes() > most_bytes_) exceed(ParseBound::bytes);
  if (stopped()) return kDead;
  uint64_t hash = configs.size();
  for (const ParseConfig& config : configs)
    hash = mix(hash, uint64_t{static_cast<uint32_t>(config.state)} << 32 | config.frame);
  const auto [first, last] = set_ids_.equal_range(hash);
  for (auto it = first; it != last; ++it)
    if (std::ranges::equal(this->configs(it->second), configs)) return it->second;
  Set set;
  set.first = configs_.size();
  set.count = static_cast<uint32_t>(configs.size());
  configs_.insert(configs_.end(), configs.begin(), configs.end());
  for (const ParseConfig& config : configs) {
    const Frame& frame = frames_[config.frame];
    const bool bottom = frame.kind != Frame::Kind::call;
    if (bottom && grammar_->accepting(config.state))
      (frame.kind == Frame::Kind::root ? set.complete : set.exits) = true;
    set.goes_on |= grammar_->moves(config.state);
  }
  const auto id = static_cast<SetId>(sets_.size());
  sets_.push_back(set);
  set_ids_.emplace(hash, id);
  next_.insert(next_.end(), classes_, kUnknown);
  return id;
}

// The frame after one more tick. The frame must have room.
FrameId ParseTable::ticked(FrameId id) {
  Frame frame = frames_[id];
  if (frame.kind == Frame::Kind::floor) {
    frame.floor_ticks = static_cast<uint8_t>(std::min<int>(frame.floor_ticks + 1, kMaxFloorTicks));
    return intern_frame(frame, {});
  }
  if (frame.kind == Frame::Kind::root || (frame.need == 0 && frame.room == kNoLimit)) return id;
  if (frame.need > 0) --frame.need;
  if (frame.room != kNoLimit) --frame.room;
  const std::vector<FrameId> copy(parents(id).begin(), parents(id).end());
  return intern_frame(frame, copy);
}

void ParseTable::add(ParseConfig config) {
  constexpr size_t kFew = 24;  // searched linearly
  if (work_.size() < kFew) {
    if (std::ranges::find(work_, config) != work_.end()) return;
  } else {
    const auto key = [](ParseConfig c) { return uint64_t{static_cast<uint32_t>(c.state)} << 32 | c.frame; };
    if (work_.size() == kFew) {
      in_work_.clear();
      for (const ParseConfig& other : work_) in_work_.insert(key(other));
    }
    if (!in_work_.insert(key(config)).second) return;
  }
  if (work_.size() >= kMaxConfigs) return exceed(ParseBound::readings);
  work_.push_back(config);
}

SetId ParseTable::compute_step(SetId set, int32_t byte_class) {
  if (stopped()) return kDead;
  const int64_t before = work_left_;
  work_.clear();
  const uint8_t byte = grammar_->sample(byte_class);
  const size_t first = sets_[static_cast<size_t>(set)].first, count = sets_[static_cast<size_t>(set)].count;
  spend(static_cast<int64_t>(count));
  for (size_t i = 0; i < count; ++i) {
    ParseConfig config = configs_[first + i];
    config.state = grammar_->step(config.state, byte);
    if (config.state < 0) continue;
    if (grammar_->ticks(config.state)) {
      if (frames_[config.frame].room == 0) continue;
      config.frame = ticked(config.frame);
    }
    if (possible(config.state, frames_[config.frame])) add(config);
  }
  const SetId to = kept(close(), before);
  if (stopped()) return kDead;  // incomplete, so not cached
  next_[static_cast<size_t>(set) * classes_ + static_cast<size_t>(byte_class)] = to;
  return to;
}

void ParseTable::enter(ParseConfig config, const Grammar::Call& call) {
  const bool fresh = config.frame & kPending;
  const Frame& caller = fresh ? pending_[config.frame & ~kPending].frame : frames_[config.frame];
  // Tail call: nothing follows, so the called rule returns directly to the caller of its caller.
  if (!call.counts && grammar_->ends(call.to) && caller.need == 0) return add({call.start, config.frame});
  if (caller.depth >= kMaxFrames) {
    dropped_ = true;
    return;
  }
  const auto id = static_cast<uint32_t>(pending_.size());
  const uint64_t key = uint64_t{static_cast<uint32_t>(call.start)} << 32 | static_cast<uint32_t>(call.to);
  const auto [entry, fresh_key] = pending_ids_.try_emplace(key, id);
  int32_t last = -1;
  for (int32_t i = fresh_key ? -1 : static_cast<int32_t>(entry->second); i >= 0;
       i = pending_[static_cast<size_t>(i)].next) {
    Pending& p = pending_[static_cast<size_t>(i)];
    last = i;
    if (p.frame.need != call.need || p.frame.room != call.room) continue;
    if (p.parents.back() != config.frame) p.parents.push_back(config.frame);  // duplicates are removed in resolve_one()
    return;
  }
  Pending p;
  p.frame.to = call.to;
  p.frame.need = call.need;
  p.frame.room = call.room;
  p.frame.depth = static_cast<uint16_t>(caller.depth + 1);
  p.parents = {config.frame};
  pending_.push_back(std::move(p));
  if (last >= 0) pending_[static_cast<size_t>(last)].next = static_cast<int32_t>(id);
  add({call.start, kPending | id});
}

void ParseTable::resolve_one(Pending& p) {
  for (FrameId& parent : p.parents)
    if (parent & kPending) parent = pending_[parent & ~kPending].id;
  std::ranges::sort(p.parents);
  p.parents.erase(std::unique(p.parents.begin(), p.parents.end()), p.parents.end());
  p.id = intern_frame(p.frame, p.parents);
  p.resolved = true;
}

// Interns a pending frame after its parents. Parents cannot form a cycle, which would be left recursion. Iterative,
// because chains may be long.
FrameId ParseTable::resolve(FrameId id) {
  if (!(id & kPending)) return id;
  std::vector<std::pair<FrameId, size_t>> path{{id & ~kPending, 0}};  // and the index of its next parent
  while (!path.empty()) {
    auto& [at, next] = path.back();
    Pending& p = pending_[at];
    while (!p.resolved && next < p.parents.size() &&
           (!(p.parents[next] & kPending) || pending_[p.parents[next] & ~kPending].resolved))
      ++next;
    if (!p.resolved && next < p.parents.size()) {
      path.emplace_back(p.parents[next] & ~kPending, 0);
      continue;
    }
    if (!p.resolved) resolve_one(p);
    path.pop_back();
  }
  return pending_[id & ~kPending].id;
}

// Adds everything reachable from `work_` without consuming a byte, and interns the set. kDead if a bound is hit.
SetId ParseTable::close() {
  pending_.clear();
  pending_ids_.clear();
  for (size_t i = 0; i < work_.size() && !stopped(); ++i) {
    const ParseConfig config = work_[i];
    spend(kAddWork);
    if (grammar_->accepting(config.state) && !(config.frame & kPending) && frames_[config.frame].need == 0) {
      const Frame frame = frames_[config.frame];
      if (frame.kind == Frame::Kind::call) {
        spend(kAddWork * int64_t{frame.count});
        for (uint32_t p = 0; p < frame.count && !stopped(); ++p) add({frame.to, parents_[frame.first + p]});
      }
    }
    const auto calls = grammar_->calls(config.state);
    spend(2 * kAddWork * std::ssize(calls));
    for (const Grammar::Call& call : calls) {
      if (stopped()) break;
      const bool fresh = config.frame & kPending;
      if (!possible(call.to, fresh ? pending_[config.frame & ~kPending].frame : frames_[config.frame])) continue;
      if (call.nullable) add({call.to, config.frame});
      enter(config, call);
    }
  }
  if (stopped()) return kDead;
  std::vector<ParseConfig> whole;
  for (ParseConfig config : work_) {
    // Drop configurations without byte transitions, which only return or call.
    const bool bottom = !(config.frame & kPending) && frames_[config.frame].kind != Frame::Kind::call;
    if (!grammar_->moves(config.state) && !(bottom && grammar_->accepting(config.state))) continue;
    config.frame = resolve(config.frame);
    whole.push_back(config);
    if (stopped()) return kDead;
  }
  std::ranges::sort(whole);
  whole.erase(std::unique(whole.begin(), whole.end()), whole.end());
  return intern_set(whole);
}

SetId ParseTable::returned(FrameId id) {
  if (returned_[id] != kUnknown) return returned_[id];
  const Frame frame = frames_[id];
  const int64_t before = work_left_;
  SetId set = kDead;
  if (frame.kind == Frame::Kind::call) {
    if (stopped()) return kDead;
    work_.clear();
    spend(kAddWork * int64_t{frame.count});
    for (uint32_t p = 0; p < frame.count; ++p) add({frame.to, parents_[frame.first + p]});
    set = kept(close(), before);
  }
  if (stopped()) return kDead;  // incomplete, so not cached
  returned_[id] = set;
  return set;
}

void ParseTable::import(const ParseTable& from, std::span<SetId> sets) {
  // The frames of the sets and their ancestors. Parents have smaller numbers, so in ascending order they come first.
  std::vector<FrameId> reached;
  std::unordered_map<FrameId, FrameId> known;
  const auto reach = [&](FrameId id) {
    if (known.try_emplace(id, 0).second) reached.push_back(id);
  };
  for (SetId set : sets) {
    use_slice(kAddWork * std::ssize(from.configs(set)));
    if (paused()) return;
    for (const ParseConfig& config : from.configs(set)) reach(config.frame);
  }
  for (size_t i = 0; i < reached.size(); ++i) {
    use_slice(kReachWork);
    if (paused()) return;
    for (FrameId parent : from.parents(reached[i])) reach(parent);
  }
  std::ranges::sort(reached);
  std::vector<FrameId> parents;
  for (FrameId id : reached) {
    if (paused()) return;
    parents.clear();
    for (FrameId parent : from.parents(id)) parents.push_back(known[parent]);
    std::ranges::sort(parents);
    if (!stopped()) known[id] = intern_frame(from.frames_[id], parents);
  }
  std::vector<ParseConfig> configs;
  for (SetId& set : sets) {
    if (paused()) return;
    configs.clear();
    for (ParseConfig config : from.configs(set)) configs.push_back({config.state, known[config.frame]});
    std::ranges::sort(configs);
    spend(kAddWork * std::ssize(configs));
    set = !stopped() ? intern_set(configs) : kDead;
  }
}

size_t ParseTable::bytes() const {
  return frames_.capacity() * (sizeof(Frame) + sizeof(SetId) + 48) + parents_.capacity() * sizeof(FrameId) +
         sets_.capacity() * (sizeof(Set) + 48) + configs_.capacity() * sizeof(ParseConfig) +
         next_.capacity() * sizeof(SetId) + (work_.capacity() + in_work_.size() * 5) * sizeof(ParseConfig) +
         pending_.capacity() * (sizeof(Pending) + 64);
}

}  // namespace millrace
