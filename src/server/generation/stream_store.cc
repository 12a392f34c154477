#include "server/generation/stream_store.h"

#include <algorithm>

#include "server/http/answer_taker.h"
#include "server/telemetry/request_facts.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxIdBytes = 256;
constexpr auto kSweepInterval = std::chrono::milliseconds(200);
constexpr int64_t kStreamOverhead = 4096;  // bytes counted for each stream in addition to its buffer

int64_t unix_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}
Clock::duration seconds_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

std::string with_event_ids(const std::string& events, int64_t at) {
  std::string out;
  for (size_t begin = 0; begin < events.size();) {
    const size_t found = events.find("\n\n", begin);
    const size_t end = found == std::string::npos ? events.size() : found + 2;
    const std::string event = events.substr(begin, end - begin);
    begin = end;
    if (event.starts_with(':')) {
      out += event;
      continue;
    }
    // The id is the offset of the event's end, including the id line itself.
    const int64_t bare = at + static_cast<int64_t>(out.size() + event.size()) + 5;
    int64_t offset = bare + 1;
    while (bare + static_cast<int64_t>(std::to_string(offset).size()) > offset) ++offset;
    out += "id: " + std::to_string(offset) + "\n" + event;
  }
  return out;
}

// The sink of one generation, and its current reader.
class ResumableStream final : public AnswerTaker, public std::enable_shared_from_this<ResumableStream> {
 public:
  // The request's facts stay with the generation: it outlives its readers.
  ResumableStream(StreamStore& store, std::string id, const Exchange& first) : store_(store), facts_(first.facts()) {
    info_.id = std::move(id);
    info_.started_ms = unix_ms();
    Exchange reader = first;
    reader.note(nullptr);
    work_ = reader_ = std::move(reader);
  }

  // From now on, notices when the reader leaves.
  void watch(uint64_t reader) {
    Exchange exchange;
    {
      std::lock_guard lock(mutex_);
      exchange = reader_;
    }
    exchange.on_disconnect([weak = weak_from_this(), reader] {
      if (const auto self = weak.lock()) self->reader_left(reader);
    });
  }

  void reply(HttpReply reply) override {  // an error before the first byte; there is no stream to buffer
    std::lock_guard lock(mutex_);
    reader().reply(std::move(reply));
    over();
    forget_at_ = Clock::now();
  }
  void begin_stream(HttpReply head) override {
    std::lock_guard lock(mutex_);
    head.body = add(head.body);
    head_ = head;
    head_.body.clear();
    begun_ = true;
    reader().begin_stream(std::move(head));
  }
  void write(std::string bytes) override {
    std::lock_guard lock(mutex_);
    if (!info_.done) reader().write(add(bytes));
  }
  void finish(std::string bytes) override {
    std::lock_guard lock(mutex_);
    if (info_.done) return;
    reader().finish(add(bytes));
    over();
  }
  void end(HttpReply whole, std::string bytes) override {
    std::lock_guard lock(mutex_);
    if (begun_) return finish(std::move(bytes));
    reader().end(std::move(whole), std::move(bytes));  // a ping may already have started the connection's stream
    over();
    forget_at_ = Clock::now();
  }
  void ping_with(HttpReply head, std::string ping) override {
    std::lock_guard lock(mutex_);
    ping_ = ping;
    reader().ping_with(std::move(head), std::move(ping));
  }
  void post(std::function<void()> work) override {
    Exchange exchange;
    {
      std::lock_guard lock(mutex_);
      exchange = work_;
    }
    exchange.post(std::move(work));
  }
  void on_disconnect(std::function<void()> gone) override {
    bool left;
    {
      std::lock_guard lock(mutex_);
      left = left_;
      if (!info_.done && !left) gone_ = std::move(gone);
    }
    if (left) gone();
  }

  StreamStore::Found resume(int64_t from, const HttpHeaders& headers, const Exchange& exchange) {
    uint64_t number = 0;
    {
      std::lock_guard lock(mutex_);
      if (from > info_.bytes) return StreamStore::Found::too_far;
      if (from < info_.bytes - static_cast<int64_t>(ring_.size())) return StreamStore::Found::too_old;
      if (!info_.done) reader().finish();  // the previous reader
      if (!info_.done && facts_) ++facts_->resumed;
      HttpReply head = head_;
      head.headers = headers;
      for (const auto& header : head_.headers)
        if (header.first != "X-Request-Id" && header.first != "Access-Control-Allow-Origin" && header.first != "Vary")
          head.headers.push_back(header);
      if (!begun_) head.content_type = "text/event-stream";
      head.body = ring_.substr(ring_.size() - static_cast<size_t>(info_.bytes - from));
      exchange.begin_stream(head);
      if (info_.done) {
        exchange.finish();
        return StreamStore::Found::yes;
      }
      head.body.clear();
      if (!ping_.empty()) exchange.ping_with(head, ping_);
      reader_ = exchange;
      number = ++reader_number_;
      forget_at_.reset();
    }
    watch(number);
    return StreamStore::Found::yes;
  }

  // Cancels the generation if it is still running, on its connection's strand.
  void leave() {
    std::function<void()> gone;
    Exchange work;
    {
      std::lock_guard lock(mutex_);
      if (info_.done) return;
      reader().finish();
      gone = std::exchange(gone_, nullptr);
      work = work_;
      left_ = true;
      over();
    }
    if (gone) work.post(std::move(gone));
  }

  KeptStream info() const {
    std::lock_guard lock(mutex_);
    return info_;
  }
  int64_t held_bytes() const {
    std::lock_guard lock(mutex_);
    return static_cast<int64_t>(ring_.capacity()) + kStreamOverhead;
  }
  std::optional<Clock::time_point> forget_at() const {
    std::lock_guard lock(mutex_);
    return forget_at_;
  }

 private:
  void reader_left(uint64_t reader) {
    {
      std::lock_guard lock(mutex_);
      if (info_.done || reader != reader_number_) return;
      reader_ = Exchange();
      forget_at_ =
          Clock::now() + (store_.draining_ ? Clock::duration::zero() : seconds_of(store_.limits_.grace_seconds));
    }
    store_.wake();
  }
  Exchange reader() const { return reader_; }  // a copy: a call on it may make the reader leave

  // Appends events to the ring and returns the bytes to send. The mutex must be held.
  std::string add(const std::string& events) {
    std::string bytes = with_event_ids(events, info_.bytes);
    ring_ += bytes;
    info_.bytes += static_cast<int64_t>(bytes.size());
    const auto most = static_cast<size_t>(store_.limits_.stream_bytes);
    if (ring_.size() > most) ring_.erase(0, ring_.size() - most + most / 4);  // not for every event
    return bytes;
  }
  void over() {
    info_.done = true;
    info_.ended_ms = unix_ms();
    gone_ = nullptr;
    work_ = reader_ = Exchange();  // releases the connection
    ring_.shrink_to_fit();
    forget_at_ = Clock::now() + seconds_of(store_.limits_.keep_seconds);
    store_.wake();
  }

  StreamStore& store_;
  const std::shared_ptr<RequestFacts> facts_;  // of the original request; may be null
  mutable std::recursive_mutex mutex_;         // recursive: a slow reader leaves within write()
  KeptStream info_;
  Exchange work_;    // the first reader's; the generation always runs on its strand
  Exchange reader_;  // empty without a reader
  uint64_t reader_number_ = 0;
  HttpReply head_;
  std::string ping_;
  std::string ring_;  // the latest bytes
  bool begun_ = false, left_ = false;
  std::function<void()> gone_;
  std::optional<Clock::time_point> forget_at_;  // nothing: there is a reader
};

StreamStore::StreamStore(const StreamLimits& limits) : limits_(limits), thread_([this] { loop(); }) {}

StreamStore::~StreamStore() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

std::string stream_owner(const HttpRequest& request) {
  const std::string_view key = request.header("x-api-key");
  return std::string(key.empty() ? request.header("authorization") : key);
}

std::string stream_id(const HttpRequest& request) {
  const std::string_view id = request.header("x-conversation-id");
  return is_stream_id(id) ? std::string(id) : "";
}

bool is_stream_id(std::string_view id) {
  return !id.empty() && id.size() <= kMaxIdBytes && std::ranges::all_of(id, [](char c) { return c > ' ' && c < 0x7F; });
}

bool StreamStore::make_room() {
  const auto needed_bytes = [&] {
    int64_t bytes = limits_.stream_bytes;  // the maximum of the new stream
    for (const auto& [key, stream] : streams_)
      bytes += stream->info().done ? stream->held_bytes() : limits_.stream_bytes;
    return bytes;
  };
  while (needed_bytes() > limits_.total_bytes) {
    auto oldest = streams_.end();
    for (auto it = streams_.begin(); it != streams_.end(); ++it) {
      const KeptStream info = it->second->info();
      if (info.done && (oldest == streams_.end() || info.ended_ms < oldest->second->info().ended_ms)) oldest = it;
    }
    if (oldest == streams_.end()) return false;
    streams_.erase(oldest);
  }
  return true;
}

std::optional<Exchange> StreamStore::keep(const std::string& owner, const std::string& id, const Exchange& exchange) {
  if (limits_.grace_seconds <= 0) return std::nullopt;
  remove(owner, id);
  const auto stream = std::make_shared<ResumableStream>(*this, id, exchange);
  {
    std::lock_guard lock(mutex_);
    if (!make_room()) return std::nullopt;
    streams_[{owner, id}] = stream;
    wake();
  }
  stream->watch(0);
  Exchange kept{std::shared_ptr<AnswerTaker>(stream)};
  if (exchange.facts()) exchange.facts()->kept = true;
  kept.note(exchange.facts());
  return kept;
}

StreamStore::Found StreamStore::resume(const std::string& owner, const std::string& id, int64_t from,
                                       const HttpHeaders& headers, const Exchange& exchange) {
  std::shared_ptr<ResumableStream> stream;
  {
    std::lock_guard lock(mutex_);
    const auto found = streams_.find({owner, id});
    if (found == streams_.end()) return Found::no_stream;
    stream = found->second;
  }
  return stream->resume(from, headers, exchange);
}

void StreamStore::drain() {
  draining_ = true;
  std::vector<std::shared_ptr<ResumableStream>> unread;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, stream] : streams_)
      if (stream->forget_at()) unread.push_back(stream);
  }
  for (const auto& stream : unread) stream->leave();
}

bool StreamStore::remove(const std::string& owner, const std::string& id) {
  std::shared_ptr<ResumableStream> stream;
  {
    std::lock_guard lock(mutex_);
    const auto found = streams_.find({owner, id});
    if (found == streams_.end()) return false;
    stream = found->second;
    streams_.erase(found);
  }
  stream->leave();
  return true;
}

std::vector<KeptStream> StreamStore::find(const std::string& owner, const std::vector<std::string>& ids) const {
  std::lock_guard lock(mutex_);
  std::vector<KeptStream> out;
  for (const std::string& id : ids)
    if (const auto found = streams_.find({owner, id}); found != streams_.end()) out.push_back(found->second->info());
  return out;
}

int64_t StreamStore::size() const {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(streams_.size());
}

void StreamStore::loop() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    std::optional<Clock::time_point> first;
    std::vector<std::shared_ptr<ResumableStream>> gone;
    const auto now = Clock::now();
    for (auto it = streams_.begin(); it != streams_.end();) {
      const auto at = it->second->forget_at();
      if (at && *at <= now) {
        gone.push_back(it->second);
        it = streams_.erase(it);
        continue;
      }
      if (at) first = first ? std::min(*first, *at) : *at;
      ++it;
    }
    if (!gone.empty()) {
      lock.unlock();
      for (const auto& stream : gone) stream->leave();
      gone.clear();
      lock.lock();
      continue;  // time has passed
    }
    // forget_at_ is set without this mutex, which a stream cannot take, so streams are also polled.
    if (streams_.empty())
      wake_.wait(lock);
    else
      wake_.wait_until(lock, std::min(first.value_or(now + kSweepInterval), now + kSweepInterval));
  }
}

}  // namespace millrace
