// ParseTable: a grammar run over bytes. All ways to read the text so far are kept at once, as a set of configurations:
// a state, and the frame of the call that it belongs to. Frames form a graph that grows to the left (GSS: Tomita, 1985;
// Scott and Johnstone, 2010, GLL parsing), so that ways which differ in the past alone share what follows.
//
//   set 7 = { (state 41, frame 3), (state 90, frame 5) }        frame 3: return to state 12 with frame 1 or frame 2
//
// A reading from which the ticks that its frame asks for (see expr.h) cannot come any more is none: so from each
// configuration of a set there is a way on, to the end of the text, as long as no bound is met.
//
// Sets and frames are interned and the transitions between sets are kept, so that text like text seen before costs one
// table look-up a byte. Not thread-safe.
//
// Bounded in readings at once, in bytes, and in work: what goes beyond a bound is no reading of the text, and is not
// taken for one: the set is kDead, and exceeded() says which bound it was until it is cleared. kDead is a set like any
// other, of no reading, so that whatever is asked of it has an answer.
//
// To learn what a state allows whatever called it, a set may stand on a floor: a frame that nothing is known of. A
// floor counts the ticks that passed on it, and asks for none.
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
inline constexpr SetId kDead = 0;                // the set without a reading; every step from it leads to it
inline constexpr uint32_t kMaxFrames = 1000;     // nested calls
inline constexpr uint8_t kMostFloorTicks = 254;  // more than a token has bytes

enum class ParseBound : uint8_t { none, readings, depth, bytes, work };
// What to tell the user, behind "grammar: ".
const char* parse_bound_reason(ParseBound bound);

struct ParseConfig {
  int32_t state = 0;
  FrameId frame = 0;
  bool operator==(const ParseConfig&) const = default;
  auto operator<=>(const ParseConfig&) const = default;
};

class ParseTable {
 public:
  static constexpr size_t kMostBytes = size_t{32} << 20;
  explicit ParseTable(std::shared_ptr<const Grammar> grammar, size_t most_bytes = kMostBytes);

  // The first bound that was met since it was cleared. From then on nothing new is worked out.
  ParseBound exceeded() const { return exceeded_; }
  void clear_exceeded() { exceeded_ = ParseBound::none; }
  bool dropped() const { return dropped_; }  // some reading ever nested deeper than kMaxFrames and was dropped
  // Work that may still be done, in look-ups of the table: about a nanosecond each.
  int64_t work_left() const { return work_left_; }
  void set_work(int64_t work) { work_left_ = work; }
  void spend(int64_t work) {
    work_left_ -= work;
    if (work_left_ < 0) exceed(ParseBound::work);
  }

  const Grammar& grammar() const { return *grammar_; }
  SetId begin();  // before the first byte
  SetId begin_on_floor(int32_t state);
  // The same sets in this table; both have one grammar. kDead from where a bound is met.
  void import(const ParseTable& from, std::span<SetId> sets);

  SetId step(SetId set, uint8_t byte) {
    const SetId to = next_[static_cast<size_t>(set) * classes_ + grammar_->class_of(byte)];
    return to != kUnknown ? to : compute_step(set, grammar_->class_of(byte));
  }
  // The set after the calls in `frame` returned; kDead for the outermost one, for floors, and where a bound was met.
  SetId returned(FrameId frame);

  std::span<const ParseConfig> configs(SetId set) const {
    const Set& s = sets_[static_cast<size_t>(set)];
    return std::span(configs_).subspan(s.first, s.count);
  }
  bool complete(SetId set) const { return sets_[static_cast<size_t>(set)].complete; }
  bool can_go_on(SetId set) const { return sets_[static_cast<size_t>(set)].goes_on; }
  bool exits(SetId set) const { return sets_[static_cast<size_t>(set)].exits; }  // what began on a floor may end here

  struct Frame {
    enum class Kind : uint8_t { call, root, floor };
    Kind kind = Kind::call;
    uint8_t floor_ticks = 0;  // of a floor
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
  // Work that one thing is worth.
  static constexpr int64_t kAddWork = 8, kSetWork = 64;

  struct Set {
    size_t first = 0;
    uint32_t count = 0;
    bool complete = false, goes_on = false, exits = false;
  };
  struct Pending {  // a frame that the current position makes
    int32_t start = 0;
    Frame frame;
    std::vector<FrameId> parents;
    FrameId id = 0;
    bool resolved = false;
    int32_t next = -1;  // with the same start and state after, but other bounds
  };

  // Whether the ticks that the frame asks for can come from this state on.
  bool possible(int32_t state, const Frame& frame) const {
    if (frame.need == 0 && frame.room == kNoLimit) return true;
    return grammar_->ticks_left(state).meets(frame.need, frame.room);
  }
  bool moves(ParseConfig config) const;
  FrameId intern_frame(Frame frame, std::span<const FrameId> parents);
  SetId intern_set(std::span<const ParseConfig> configs);
  FrameId ticked(FrameId id);
  void exceed(ParseBound bound) {
    if (exceeded_ == ParseBound::none) exceeded_ = bound;
  }
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
  int64_t work_left_ = INT64_MAX;
  ParseBound exceeded_ = ParseBound::none;
  bool dropped_ = false;

  std::vector<ParseConfig> work_;  // of the set in the making
  std::vector<Pending> pending_;
  std::unordered_set<uint64_t> in_work_;                // once they are many
  std::unordered_map<uint64_t, uint32_t> pending_ids_;  // start and state after; the first of those
};

}  // namespace millrace
