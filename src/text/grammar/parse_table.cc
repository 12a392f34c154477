#include "text/grammar/parse_table.h"

#include <algorithm>

namespace millrace {
namespace {

uint64_t mix(uint64_t h, uint64_t x) {
  h = (h ^ x) * 0x9E3779B97F4A7C15ull;
  return h ^ h >> 31;
}

}  // namespace

ParseTable::ParseTable(std::shared_ptr<const Grammar> grammar)
    : grammar_(std::move(grammar)), classes_(static_cast<size_t>(grammar_->classes())) {
  Frame root;
  root.kind = Frame::Kind::root;
  root.floor_ticks = kNoTicks;
  intern_frame(root, {});
}

SetId ParseTable::begin() {
  work_.clear();
  add({grammar_->start(), 0});
  return close();
}

SetId ParseTable::begin_on_floor(int32_t state) {
  Frame floor;
  floor.kind = Frame::Kind::floor;
  const FrameId id = intern_frame(floor, {});
  work_.clear();
  add({state, id});
  return close();
}

FrameId ParseTable::intern_frame(Frame frame, std::span<const FrameId> parents) {
  uint64_t hash = mix(mix(static_cast<uint64_t>(frame.kind), static_cast<uint32_t>(frame.to)), uint64_t{frame.need} << 32 | frame.room);
  hash = mix(hash, frame.kind == Frame::Kind::floor ? frame.floor_ticks : 0);
  for (FrameId parent : parents) hash = mix(hash, parent);
  const auto [first, last] = frame_ids_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const Frame& other = frames_[it->second];
    if (other.kind == frame.kind && other.to == frame.to && other.need == frame.need && other.room == frame.room &&
        (frame.kind != Frame::Kind::floor || other.floor_ticks == frame.floor_ticks) && std::ranges::equal(this->parents(it->second), parents))
      return it->second;
  }
  if (frame.kind == Frame::Kind::call) {
    frame.floor_ticks = kNoTicks;
    frame.depth = 0;
    for (FrameId parent : parents) {
      frame.floor_ticks = std::min(frame.floor_ticks, frames_[parent].floor_ticks);
      frame.depth = std::max(frame.depth, static_cast<uint16_t>(frames_[parent].depth + 1));
    }
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
  uint64_t hash = configs.size();
  for (const ParseConfig& config : configs) hash = mix(hash, uint64_t{static_cast<uint32_t>(config.state)} << 32 | config.frame);
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
    if (bottom && grammar_->accepting(config.state)) {
      if (frame.kind == Frame::Kind::root) set.complete = true;
      else set.exit_ticks = std::min(set.exit_ticks, frame.floor_ticks);
    }
    if (!grammar_->moves(config.state)) continue;
    set.goes_on = true;
    set.open_ticks = std::min(set.open_ticks, frame.floor_ticks);
  }
  const auto id = static_cast<SetId>(sets_.size());
  sets_.push_back(set);
  set_ids_.emplace(hash, id);
  next_.insert(next_.end(), classes_, kUnknown);
  return id;
}

// The frame after one more tick in it. Not for a frame without room.
FrameId ParseTable::ticked(FrameId id) {
  Frame frame = frames_[id];
  if (frame.kind == Frame::Kind::floor) {
    frame.floor_ticks = static_cast<uint8_t>(std::min(frame.floor_ticks + 1, kNoTicks - 1));
    return intern_frame(frame, {});
  }
  if (frame.kind == Frame::Kind::root || (frame.need == 0 && frame.room == kNoLimit)) return id;
  if (frame.need > 0) --frame.need;
  if (frame.room != kNoLimit) --frame.room;
  const std::vector<FrameId> copy(parents(id).begin(), parents(id).end());
  return intern_frame(frame, copy);
}

void ParseTable::add(ParseConfig config) {
  if (work_.size() >= kMaxConfigs) {
    overflow_ = true;
    return;
  }
  if (std::ranges::find(work_, config) == work_.end()) work_.push_back(config);
}

SetId ParseTable::compute_step(SetId set, int32_t byte_class) {
  work_.clear();
  const uint8_t byte = grammar_->sample(byte_class);
  const size_t first = sets_[static_cast<size_t>(set)].first, count = sets_[static_cast<size_t>(set)].count;
  for (size_t i = 0; i < count; ++i) {
    ParseConfig config = configs_[first + i];
    config.state = grammar_->step(config.state, byte);
    if (config.state < 0) continue;
    if (grammar_->ticks(config.state)) {
      if (frames_[config.frame].room == 0) continue;
      config.frame = ticked(config.frame);
    }
    if (grammar_->ends(config.state) && frames_[config.frame].need > 0) continue;  // too few: it may not end yet
    add(config);
  }
  const SetId to = close();
  next_[static_cast<size_t>(set) * classes_ + static_cast<size_t>(byte_class)] = to;
  return to;
}

void ParseTable::enter(ParseConfig config, const Grammar::Call& call) {
  const bool fresh = config.frame & kPending;
  const Frame& caller = fresh ? pending_[config.frame & ~kPending].frame : frames_[config.frame];
  // What follows the call is nothing: the called rule may as well return where the caller would.
  if (!call.counts && grammar_->ends(call.to) && caller.need == 0) return add({call.start, config.frame});
  if (caller.depth >= kMaxFrames) return;
  for (size_t i = 0; i < pending_.size(); ++i) {
    Pending& p = pending_[i];
    if (p.start != call.start || p.frame.to != call.to || p.frame.need != call.need || p.frame.room != call.room) continue;
    if (std::ranges::find(p.parents, config.frame) == p.parents.end()) p.parents.push_back(config.frame);
    return;
  }
  Pending p;
  p.start = call.start;
  p.frame.to = call.to;
  p.frame.need = call.need;
  p.frame.room = call.room;
  p.frame.depth = static_cast<uint16_t>(caller.depth + 1);
  p.parents = {config.frame};
  pending_.push_back(std::move(p));
  add({call.start, kPending | static_cast<FrameId>(pending_.size() - 1)});
}

// Makes a pending frame a real one, its parents first. There is no circle among them: that would be left recursion.
FrameId ParseTable::resolve(FrameId id) {
  if (!(id & kPending)) return id;
  Pending& p = pending_[id & ~kPending];
  if (p.resolved) return p.id;
  for (FrameId& parent : p.parents) parent = resolve(parent);
  std::ranges::sort(p.parents);
  p.parents.erase(std::unique(p.parents.begin(), p.parents.end()), p.parents.end());
  p.id = intern_frame(p.frame, p.parents);
  p.resolved = true;
  return p.id;
}

// Completes `work_` with what is reached without a byte, and interns it.
SetId ParseTable::close() {
  pending_.clear();
  overflow_ = false;
  for (size_t i = 0; i < work_.size(); ++i) {
    const ParseConfig config = work_[i];
    if (grammar_->accepting(config.state) && !(config.frame & kPending) && frames_[config.frame].need == 0) {
      const Frame frame = frames_[config.frame];
      if (frame.kind == Frame::Kind::call)
        for (uint32_t p = 0; p < frame.count; ++p) add({frame.to, parents_[frame.first + p]});
    }
    for (const Grammar::Call& call : grammar_->calls(config.state)) {
      if (call.nullable) add({call.to, config.frame});
      enter(config, call);
    }
  }
  if (overflow_) return kDead;
  std::vector<ParseConfig> whole;
  for (ParseConfig config : work_) {
    config.frame = resolve(config.frame);
    const bool bottom = frames_[config.frame].kind != Frame::Kind::call;
    // What has returned or only calls leads nowhere by itself.
    if (!grammar_->moves(config.state) && !(bottom && grammar_->accepting(config.state))) continue;
    whole.push_back(config);
  }
  std::ranges::sort(whole);
  whole.erase(std::unique(whole.begin(), whole.end()), whole.end());
  return intern_set(whole);
}

SetId ParseTable::returned(FrameId id) {
  if (returned_[id] != kUnknown) return returned_[id];
  const Frame frame = frames_[id];
  SetId set = kDead;
  if (frame.kind == Frame::Kind::call) {
    work_.clear();
    for (uint32_t p = 0; p < frame.count; ++p) add({frame.to, parents_[frame.first + p]});
    set = close();
  }
  returned_[id] = set;
  return set;
}

SetId ParseTable::import(const ParseTable& from, SetId set) {
  if (set == kDead) return kDead;
  std::unordered_map<FrameId, FrameId> known;
  const auto copy = [&](auto&& self, FrameId id) -> FrameId {
    if (auto found = known.find(id); found != known.end()) return found->second;
    std::vector<FrameId> parents;
    for (FrameId parent : from.parents(id)) parents.push_back(self(self, parent));
    std::ranges::sort(parents);
    return known[id] = intern_frame(from.frames_[id], parents);
  };
  std::vector<ParseConfig> configs;
  for (ParseConfig config : from.configs(set)) configs.push_back({config.state, copy(copy, config.frame)});
  std::ranges::sort(configs);
  return intern_set(configs);
}

size_t ParseTable::bytes() const {
  return frames_.capacity() * (sizeof(Frame) + 48) + parents_.capacity() * sizeof(FrameId) + sets_.capacity() * (sizeof(Set) + 48) +
         configs_.capacity() * sizeof(ParseConfig) + next_.capacity() * sizeof(SetId);
}

}  // namespace millrace
