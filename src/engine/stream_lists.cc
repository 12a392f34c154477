#include "engine/stream_lists.h"

#include <algorithm>

namespace millrace {
namespace {

template <typename List>
StreamPtr take(List& list, const LiveStream& stream) {
  const auto at = std::ranges::find(list, &stream, &StreamPtr::get);
  if (at == list.end()) return nullptr;
  StreamPtr taken = std::move(*at);
  list.erase(at);
  return taken;
}

bool has_ended(const StreamPtr& stream) { return stream->ended; }

}  // namespace

LiveStream* StreamLists::find(RequestId stream) const {
  const auto found = table_.find(stream);
  return found == table_.end() ? nullptr : found->second;
}

void StreamLists::open(LiveStream& stream) {
  Sequence& s = stream.sequence;
  s.arrival = next_arrival_++;
  limited_ += s.times.time_limit > 0;
  table_[s.id] = &stream;
}

void StreamLists::add(StreamPtr stream) {
  open(*stream);
  enqueue(std::move(stream));
}

void StreamLists::add_running(StreamPtr stream) {
  open(*stream);
  running_.push_back(std::move(stream));
}

void StreamLists::enqueue(StreamPtr stream) {
  waiting_answers_ += stream->sequence.parent != 0;
  auto behind = waiting_.end();
  while (behind != waiting_.begin() && (*std::prev(behind))->sequence.arrival > stream->sequence.arrival) --behind;
  waiting_.insert(behind, std::move(stream));
}

void StreamLists::start(const LiveStream& stream) {
  waiting_answers_ -= stream.sequence.parent != 0;
  running_.push_back(take(waiting_, stream));
}

void StreamLists::leave(const LiveStream& stream) { leaving_.push_back(take(running_, stream)); }

void StreamLists::requeue(const LiveStream& stream) {
  StreamPtr taken = take(leaving_, stream);
  enqueue(taken ? std::move(taken) : take(running_, stream));
}

void StreamLists::remove(const Sequence& s) {
  const bool queued = s.phase == StreamPhase::waiting || s.phase == StreamPhase::swapped;
  waiting_answers_ -= s.parent != 0 && queued;
  limited_ -= s.times.time_limit > 0;
  table_.erase(s.id);
}

void StreamLists::erase_ended() {
  erase_ended_running();
  std::erase_if(waiting_, has_ended);
  std::erase_if(leaving_, has_ended);
}

void StreamLists::erase_ended_running() { std::erase_if(running_, has_ended); }

void StreamLists::cancel(RequestId request) {
  for (auto& [id, stream] : table_) {
    if (request_of(id) != request) continue;
    stream->cancelled = true;
    cancelled_ = true;
  }
}

// The prefix index may have a later block of one stream and an earlier one of another.
void StreamLists::mark_shared(const Sequence& found) {
  for (const auto* list : {&running_, &leaving_}) {
    for (const StreamPtr& other : *list) {
      KvState& o = other->sequence.kv;
      int64_t i = std::min(std::ssize(o.blocks), std::ssize(found.kv.blocks));
      while (i > o.shared_blocks && o.blocks[static_cast<size_t>(i - 1)] != found.kv.blocks[static_cast<size_t>(i - 1)])
        --i;
      o.shared_blocks = std::max(o.shared_blocks, i);
    }
  }
}

}  // namespace millrace
