#include "kv/state_pool.h"

#include <fmt/format.h>

#include <cassert>
#include <cstring>

namespace millrace {
namespace {

constexpr int64_t kLine = 64;

int64_t padded(int64_t values) { return (values * static_cast<int64_t>(sizeof(float)) + kLine - 1) / kLine * kLine; }

}  // namespace

int64_t StatePool::slot_bytes(std::span<const int64_t> values) {
  int64_t bytes = 0;
  for (int64_t layer : values) bytes += padded(layer);
  return bytes;
}

Result<StatePool> StatePool::create(std::span<const int64_t> values, int64_t slots, int64_t copies, int64_t marks) {
  StatePool pool;
  for (int64_t layer : values) {
    pool.offsets_.push_back(pool.slot_bytes_);
    pool.slot_bytes_ += padded(layer);
  }
  if (pool.slot_bytes_ == 0) return pool;
  if (slots < 1 || slots > INT32_MAX)
    return Error::user(fmt::format("recurrent states: must be between 1 and {}, got {}", INT32_MAX, slots));
  if (copies < 0 || copies > INT32_MAX - slots)
    return Error::user(fmt::format("recurrent states: {} copies in addition to {} slots are too many", copies, slots));
  pool.copies_ = copies;
  pool.marks_ = marks;
  slots += copies;
  if (slots > INT64_MAX / pool.slot_bytes_)
    return Error::resource(fmt::format("recurrent states: {} of {} bytes do not fit; lower the number of streams",
                                       slots, pool.slot_bytes_));
  pool.slots_ = slots;
  MILLRACE_TRY(pool.buffer_, AlignedBuffer::allocate(pool.bytes(), "recurrent states"));
  pool.held_.assign(static_cast<size_t>(slots), 0);
  for (int64_t i = slots; i-- > 0;) pool.free_.push_back(static_cast<StateId>(i));
  return pool;
}

Result<StateId> StatePool::allocate() {
  if (free_.empty()) return Error::resource("recurrent states: no free slot");
  const StateId slot = free_.back();
  free_.pop_back();
  held_[static_cast<size_t>(slot)] = 1;
  return slot;
}

void StatePool::release(StateId slot) {
  assert(held(slot));
  held_[static_cast<size_t>(slot)] = 0;
  free_.push_back(slot);
}

void StatePool::copy(StateId from, StateId to) {
  std::memcpy(buffer_.data() + to * slot_bytes_, buffer_.data() + from * slot_bytes_, static_cast<size_t>(slot_bytes_));
}

}  // namespace millrace
