#include "capi/event_queue.h"

#include <fmt/format.h>

#include <utility>

namespace millrace {
namespace {

StreamEvent stream_event(TokenEvent&& event) {
  StreamEvent out;
  out.answer = static_cast<int32_t>(event.answer);
  out.token = event.token;
  out.logprob = event.logprob.logprob;
  out.finish = event.finish;
  out.last = event.last;
  out.text = std::move(event.text);
  out.top = std::move(event.top_logprobs);
  if (event.finish != FinishReason::none || event.last)
    out.end = std::make_unique<StreamEvent::End>(std::move(event.error), std::move(event.timings));
  return out;
}

// Waits until `ready`. Returns false at the deadline.
template <typename Ready>
bool wait(std::condition_variable& condition, std::unique_lock<std::mutex>& lock, EventQueue::Deadline until,
          const Ready& ready) {
  if (until) return condition.wait_until(lock, *until, ready);
  condition.wait(lock, ready);
  return true;
}

}  // namespace

void EventQueue::add(const std::shared_ptr<StreamQueue>& stream) {
  std::lock_guard lock(mutex_);
  stream->ended = false;
  ++unfinished_;
}

void EventQueue::remove(const std::shared_ptr<StreamQueue>& stream) {
  std::lock_guard lock(mutex_);
  stream->freed = true;
  stream->events.clear();
  std::erase(ready_, stream);
  if (!stream->ended) --unfinished_;
  stream->ended = true;
  any_arrived_.notify_all();
}

void EventQueue::push(const std::shared_ptr<StreamQueue>& stream, StreamEvent event) {
  stream->events.push_back(std::move(event));
  if (!std::exchange(stream->is_ready, true)) ready_.push_back(stream);
  stream->arrived.notify_all();
  any_arrived_.notify_all();
}

bool EventQueue::arrived(const std::shared_ptr<StreamQueue>& stream, TokenEvent&& event) {
  StreamEvent next = stream_event(std::move(event));
  std::lock_guard lock(mutex_);
  if (stream->freed) return true;
  if (stream->overflowed && next.last) {
    next.finish = FinishReason::error;
    next.end->error = Error::resource(fmt::format(
        "stream: {} events were unread, so the request was cancelled; poll it, or raise unread_events", limit_));
  }
  const bool fits = static_cast<int64_t>(stream->events.size()) < limit_ && !stream->overflowed;
  if (fits || next.last) push(stream, std::move(next));
  return fits || next.last || std::exchange(stream->overflowed, true);
}

void EventQueue::take(StreamQueue& stream) {
  stream.current = std::move(stream.events.front());
  stream.events.pop_front();
  if (!stream.current.last) return;
  stream.ended = true;
  --unfinished_;
  any_arrived_.notify_all();
}

EventQueue::Outcome EventQueue::next(StreamQueue& stream, Deadline until) {
  std::unique_lock lock(mutex_);
  const auto ready = [&] { return stream.ended || !stream.events.empty(); };
  if (!wait(stream.arrived, lock, until, ready)) return Outcome::timeout;
  if (stream.ended) return Outcome::end;
  take(stream);
  return Outcome::event;
}

EventQueue::Outcome EventQueue::next_of_any(Deadline until, std::shared_ptr<StreamQueue>* stream) {
  std::unique_lock lock(mutex_);
  const auto ready = [&] {
    while (!ready_.empty() && ready_.front()->events.empty()) {  // read by next()
      ready_.front()->is_ready = false;
      ready_.pop_front();
    }
    return !ready_.empty() || unfinished_ == 0;
  };
  if (!wait(any_arrived_, lock, until, ready)) return Outcome::timeout;
  if (ready_.empty()) return Outcome::end;
  *stream = std::move(ready_.front());
  ready_.pop_front();
  (*stream)->is_ready = false;
  take(**stream);
  if (!(*stream)->events.empty()) {
    (*stream)->is_ready = true;
    ready_.push_back(*stream);
  }
  return Outcome::event;
}

}  // namespace millrace
