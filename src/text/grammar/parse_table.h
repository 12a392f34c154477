// ParseTable: runs a grammar over bytes. All parses of the text so far are tracked at once, as a set of configurations.
// A configuration is a state and the frame of the call that the state belongs to. Frames form a graph-structured stack
// (Tomita, 1985; Scott and Johnstone, 2010, GLL parsing), so that parses that differ only in the past share their
// continuations.
//
//   set 7 = { (state 41, frame 3), (state 90, frame 5) }        frame 3: return to state 12 with frame 1 or frame 2
//
// A parse is dropped when it can no longer produce the ticks that its frame requires (see expr.h). Every configuration
// of a set can therefore be continued to a complete text, as long as no bound is hit.
//
// Sets and frames are interned, and transitions between sets are cached, so that a known transition costs one table
// lookup per byte. Not thread-safe.
//
// The number of simultaneous parses, the bytes and the work are bounded. Beyond a bound, queries return kDead, and
// exceeded() reports the bound until it is cleared. kDead is a valid set without parses, so every query accepts it.
//
// A caller may limit the work of one query by set_slice(). If the work does not fit in the slice, it is undone and not
// charged, the query returns kDead, and paused() is true. The query must then be repeated with a new slice. Results and
// charges do not depend on slices.
//
// The texts that a state allows for any caller are computed on a floor: a frame whose parents are unknown. A floor
// counts the ticks above it and requires none.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/grammar/grammar.h"

namespace millrace {

using SetId = int32_t;
using FrameId = uint32_t;
inline constexpr SetId kDead = 0;               // the set without parses; every step from it leads back to it
inline constexpr uint32_t kMaxFrames = 1000;    // nested calls
inline constexpr uint8_t kMaxFloorTicks = 254;  // more than the maximum bytes of a token

enum class ParseBound : uint8_t { none, readings, depth, bytes, work };
// Returns the text for the user that follows "grammar: " in the error.
const char* parse_bound_reason(ParseBound bound);

struct ParseConfig {
  int32_t state = 0;
  FrameId frame = 0;
  bool operator==(const ParseConfig&) const = default;
  auto operator<=>(const ParseConfig&) const = default;
};

class ParseTable {
 public:
  static constexpr size_t kMaxBytes = size_t{32} << 20;
  explicit ParseTable(std::shared_ptr<const Grammar> grammar, size_t most_bytes = kMaxBytes);

  // Returns the first bound that was hit since clear_exceeded(). Until it is cleared, nothing new is computed.
  ParseBound exceeded() const { return exceeded_; }
  void clear_exceeded() { exceeded_ = ParseBound::none; }
  bool dropped() const { return dropped_; }  // true: a parse was dropped because it nested deeper than kMaxFrames
  // Returns the remaining work, in table lookups of about a nanosecond each.
  int64_t work_left() const { return work_left_; }
  void set_work(int64_t work) { work_left_ = work; }
  void spend(int64_t work) {
    charge(work);
    use_slice(work);
  }
  void charge(int64_t work) {  // charges work that was done elsewhere and is not part of the slice
    work_left_ -= work;
    if (work_left_ < 0) exceed(ParseBound::work);
  }

  // Returns the remaining work until queries pause, in the units of work_left().
  int64_t slice_left() const { return slice_left_; }
  void set_slice(int64_t work) {
    slice_left_ = work;
    slice_used_ = false;
  }
  void use_slice(int64_t work) {
    slice_left_ -= work;
    if (slice_left_ < 0) slice_used_ = true;
  }
  bool paused() const { return slice_used_ && exceeded_ == ParseBound::none; }

  const Grammar& grammar() const { return *grammar_; }
  SetId begin();  // returns the set before the first byte
  SetId begin_on_floor(int32_t state);
  // Translates `sets` of another table of the same grammar to sets of this table. After a bound is hit, the remaining
  // sets are kDead. After a pause, neither the sets nor this table can be used.
  void import(const ParseTable& from, std::span<SetId> sets);

  SetId step(SetId set, uint8_t byte) {
    const SetId to = next_[static_cast<size_t>(set) * classes_ + grammar_->class_of(byte)];
    return to != kUnknown ? to : compute_step(set, grammar_->class_of(byte));
  }
  // Returns the set after the call of `frame` has returned; kDead for the outermost frame, for floors, and beyond a
  // bound.
  SetId returned(FrameId frame);

  std::span<const ParseConfig> configs(SetId set) const {
    const Set& s = sets_[static_cast<size_t>(set)];
    return std::span(configs_).subspan(s.first, s.count);
  }
  bool complete(SetId set) const { return sets_[static_cast<size_t>(set)].complete; }
  bool can_continue(SetId set) const { return sets_[static_cast<size_t>(set)].goes_on; }
  bool exits(SetId set) const { return sets_[static_cast<size_t>(set)].exits; }  // the floor's rule may end here

  struct Frame {
    enum class Kind : uint8_t { call, root, floor };
    Kind kind = Kind::call;
    uint8_t floor_ticks = 0;  // floor only
    uint16_t depth = 0;
    int32_t to = -1;  // state after the call
    uint32_t need = 0, room = kNoLimit;
    uint32_t first = 0, count = 0;  // parents
  };
  const Frame& frame(FrameId id) const { return frames_[id]; }
  FrameId frames() const { return static_cast<FrameId>(frames_.size()); }  // parents have smaller numbers
  std::span<const FrameId> parents(FrameId id) const {
    return std::span(parents_).subspan(frames_[id].first, frames_[id].count);
  }
  size_t bytes() const;

 private:
  static constexpr SetId kUnknown = -1;
  static constexpr uint32_t kMaxConfigs = 16384;
  static constexpr FrameId kPending = 1u << 31;
  // Work per added configuration and per created set.
  static constexpr int64_t kAddWork = 8, kSetWork = 64;
  static constexpr int64_t kReachWork = 64;  // work per frame that import() finds; only counted in the slice

  struct Set {
    size_t first = 0;
    uint32_t count = 0;
    bool complete = false, goes_on = false, exits = false;
  };
  struct Pending {  // a frame created at the current position
    Frame frame;
    std::vector<FrameId> parents;
    FrameId id = 0;
    bool resolved = false;
    int32_t next = -1;  // next pending frame with equal start and return state and different bounds; -1: none
  };

  // Returns true if the ticks that the frame requires are possible from this state.
  bool possible(int32_t state, const Frame& frame) const {
    if (frame.need == 0 && frame.room == kNoLimit) return true;
    return grammar_->ticks_left(state).meets(frame.need, frame.room);
  }
  FrameId intern_frame(Frame frame, std::span<const FrameId> parents);
  SetId intern_set(std::span<const ParseConfig> configs);
  FrameId ticked(FrameId id);
  void exceed(ParseBound bound) {
    if (exceeded_ == ParseBound::none) exceeded_ = bound;
  }
  bool stopped() const { return slice_used_ || exceeded_ != ParseBound::none; }
  SetId kept(SetId set, int64_t work_before);
  SetId compute_step(SetId set, int32_t byte_class);
  void add(ParseConfig config);
  void enter(ParseConfig config, const Grammar::Call& call);
  FrameId resolve(FrameId id);
  void resolve_one(Pending& pending);
  SetId close();

  std::shared_ptr<const Grammar> grammar_;
  size_t classes_;
  std::vector<Frame> frames_;
  std::vector<FrameId> parents_;
  std::unordered_multimap<uint64_t, FrameId> frame_ids_;
  std::vector<SetId> returned_;  // [frame]
  std::vector<Set> sets_;
  std::vector<ParseConfig> configs_;
  std::unordered_multimap<uint64_t, SetId> set_ids_;
  std::vector<SetId> next_;  // [set, class]

  size_t most_bytes_;
  int64_t work_left_ = INT64_MAX, slice_left_ = INT64_MAX;
  bool slice_used_ = false;
  ParseBound exceeded_ = ParseBound::none;
  bool dropped_ = false;

  std::vector<ParseConfig> work_;  // the set under construction
  std::vector<Pending> pending_;
  std::unordered_set<uint64_t> in_work_;                // used once work_ is large
  std::unordered_map<uint64_t, uint32_t> pending_ids_;  // by start and return state: first of the chain of `next`
};

}  // namespace millrace
