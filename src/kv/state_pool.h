// StatePool: the states of recurrent layers, a fixed number of values for each stream however long it is. A stream
// holds one slot with the states of all layers together, so that a fork is one copy; marks fill further slots
// (flow/state_mark.h). A stream's first token sets its slot to zero (models/mixers/); a slot that is handed out holds
// any finite values. Not thread-safe: owned by the engine thread; workers touch only the slots of their streams.
//
//   [slot][layer][values of the layer, padded to whole cache lines]
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

using StateId = int32_t;  // -1: none

class StatePool {
 public:
  StatePool() = default;  // for models without recurrent layers
  // `values`: of each layer, 0 where a layer keeps no state. `copies`: slots that the prefix index may hold, in
  // addition to the `slots` of streams; `marks`: number of `slots` for the states behind drafted tokens. Errors: user,
  // resource.
  static Result<StatePool> create(std::span<const int64_t> values, int64_t slots, int64_t copies = 0,
                                  int64_t marks = 0);
  // Bytes of one slot.
  static int64_t slot_bytes(std::span<const int64_t> values);

  bool any() const { return slot_bytes_ > 0; }
  int64_t slots() const { return slots_; }    // all, those for copies included
  int64_t copies() const { return copies_; }  // slots for copies of the prefix index
  int64_t marks() const { return marks_; }    // slots for the states behind drafted tokens
  int64_t free() const { return static_cast<int64_t>(free_.size()); }
  int64_t slot_bytes() const { return slot_bytes_; }
  int64_t bytes() const { return slots_ * slot_bytes_; }

  Result<StateId> allocate();  // errors: resource when none is free
  void release(StateId slot);
  void copy(StateId from, StateId to);  // a fork of `from`, or a state on which a draft runs
  bool held(StateId slot) const { return held_[static_cast<size_t>(slot)] != 0; }

  float* values(int64_t layer, StateId slot) {
    return reinterpret_cast<float*>(buffer_.data() + slot * slot_bytes_ + offsets_[static_cast<size_t>(layer)]);
  }

 private:
  int64_t slots_ = 0;
  int64_t copies_ = 0;
  int64_t marks_ = 0;
  int64_t slot_bytes_ = 0;
  std::vector<int64_t> offsets_;  // bytes, by layer
  AlignedBuffer buffer_;
  std::vector<StateId> free_;  // handed out from the back
  std::vector<char> held_;
};

}  // namespace millrace
