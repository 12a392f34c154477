#include "server/generation/stream_store.h"

#include <algorithm>
#include <tuple>

#include "base/start_thread.h"
#include "server/access/access.h"
#include "server/http/answer_taker.h"
#include "server/telemetry/request_facts.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxIdBytes = 256;
constexpr size_t kPartBytes = 64 << 10;  // of an ended stream that is sent again
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
  ResumableStream(StreamStore& store, std::string id, const Exchange& first, Farewell farewell)
      : store_(store), facts_(first.facts()), farewell_(std::move(farewell)) {
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
    if (info_.done) return;
    reader().reply(std::move(reply));
    over();
  }
  void begin_stream(HttpReply head) override {
    std::lock_guard lock(mutex_);
    if (info_.done) return;
    if (phase_ == Phase::buffered) head.headers.emplace_back("X-Conversation-Id", info_.id);
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
    if (info_.done) return;
    if (begun_) return finish(std::move(bytes));
    reader().end(std::move(whole), std::move(bytes));  // a ping may already have started the connection's stream
    over();
  }
  void ping_with(HttpReply head, std::string ping) override {
    std::lock_guard lock(mutex_);
    if (info_.done) return;
    if (phase_ == Phase::buffered) head.headers.emplace_back("X-Conversation-Id", info_.id);
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
      if (phase_ == Phase::passed_on || (info_.done && !begun_)) return StreamStore::Found::no_stream;
      if (from > info_.bytes) return StreamStore::Found::too_far;
      if (from < info_.bytes - static_cast<int64_t>(ring_.size())) return StreamStore::Found::too_old;
      number = ++reader_number_;  // from now on, the previous reader cannot leave
      if (!info_.done) end_reader(StreamEnd::other_reader);
      if (!info_.done && facts_) ++facts_->resumed;
      HttpReply head = head_;
      head.headers = headers;
      for (const auto& header : head_.headers)
        if (header.first != "X-Request-Id" && header.first != "Access-Control-Allow-Origin" && header.first != "Vary")
          head.headers.push_back(header);
      if (!begun_) head.content_type = "text/event-stream";
      const size_t at = ring_.size() - static_cast<size_t>(info_.bytes - from);
      if (info_.done) {
        send_again(std::move(head), at, exchange);
        return StreamStore::Found::yes;
      }
      head.body = ring_.substr(at);
      exchange.begin_stream(head);
      head.body.clear();
      if (!ping_.empty()) exchange.ping_with(head, ping_);
      reader_ = exchange;
      forget_at_.reset();
    }
    watch(number);
    return StreamStore::Found::yes;
  }

  // Buffers the stream from now on, or passes it on if there is no room.
  void admit(bool room) {
    bool unread = false;
    {
      std::lock_guard lock(mutex_);
      if (info_.done) return;
      phase_ = room ? Phase::buffered : Phase::passed_on;
      unread = forget_at_.has_value();
    }
    if (unread && !room) leave(StreamEnd::expired);
  }

  // Ends the stream's reader with a farewell, and cancels the generation on its connection's strand, if the stream has
  // not ended.
  void leave(StreamEnd why) {
    std::function<void()> gone;
    Exchange work;
    {
      std::lock_guard lock(mutex_);
      if (info_.done) return;
      end_reader(why);
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
  // Bytes that the stream may have until it ends, or has after its end.
  int64_t held_bytes() const {
    std::lock_guard lock(mutex_);
    if (phase_ == Phase::buffered && !info_.done) return store_.limits_.stream_bytes;
    return static_cast<int64_t>(ring_.capacity()) + kStreamOverhead;
  }
  bool is(const Exchange& kept) const { return kept.taker().get() == this; }
  std::optional<Clock::time_point> forget_at() const {
    std::lock_guard lock(mutex_);
    return forget_at_;
  }

 private:
  enum class Phase { waiting, buffered, passed_on };

  void reader_left(uint64_t reader) {
    bool buffered = false;
    {
      std::lock_guard lock(mutex_);
      if (info_.done || reader != reader_number_) return;
      reader_ = Exchange();
      buffered = phase_ == Phase::buffered;
      forget_at_ =
          Clock::now() + (store_.draining_ ? Clock::duration::zero() : seconds_of(store_.limits_.grace_seconds));
    }
    if (!buffered) return leave(StreamEnd::expired);
    store_.wake();
  }
  // The mutex must be held. The farewell is not part of the buffered stream, whose later readers may go on.
  void end_reader(StreamEnd why) {
    FinalReply last = farewell_(why);
    reader().end(std::move(last.whole), std::move(last.event));
  }
  Exchange reader() const { return reader_; }  // a copy: a call on it may make the reader leave

  // Appends events to the ring and returns the bytes to send. The mutex must be held.
  std::string add(const std::string& events) {
    if (phase_ != Phase::buffered) return events;
    std::string bytes = with_event_ids(events, info_.bytes);
    buffer(bytes);
    info_.bytes += static_cast<int64_t>(bytes.size());
    return bytes;
  }
  // The ring never has a larger capacity than its limit, which a string that grows by itself would have.
  void buffer(std::string_view bytes) {
    const auto most = static_cast<size_t>(store_.limits_.stream_bytes);
    if (ring_.size() + bytes.size() > most) {
      const size_t kept = most - most / 4;  // so that the next event drops nothing
      if (bytes.size() > kept) bytes.remove_prefix(bytes.size() - kept);
      ring_.erase(0, ring_.size() - std::min(ring_.size(), kept - bytes.size()));
    }
    if (const size_t size = ring_.size() + bytes.size(); size > ring_.capacity()) {
      std::string larger;
      larger.reserve(std::clamp(2 * ring_.capacity(), size, most));
      larger += ring_;
      ring_ = std::move(larger);
    }
    ring_ += bytes;
  }
  // Any number of clients may read an ended stream at the same time: they share its bytes.
  void send_again(HttpReply head, size_t from, const Exchange& exchange) {
    head.more = [self = shared_from_this(), from](std::string& out) mutable {
      std::lock_guard lock(self->mutex_);
      const size_t count = std::min(kPartBytes, self->ring_.size() - from);
      out.append(self->ring_, from, count);
      from += count;
      return from < self->ring_.size();
    };
    exchange.begin_stream(std::move(head));
  }
  void over() {
    info_.done = true;
    info_.ended_ms = unix_ms();
    gone_ = nullptr;
    work_ = reader_ = Exchange();  // releases the connection
    ring_.shrink_to_fit();
    const bool retained = begun_ && phase_ == Phase::buffered;
    forget_at_ = Clock::now() + (retained ? seconds_of(store_.limits_.keep_seconds) : Clock::duration::zero());
    store_.wake();
  }

  StreamStore& store_;
  const std::shared_ptr<RequestFacts> facts_;  // of the original request; may be null
  const Farewell farewell_;
  mutable std::recursive_mutex mutex_;  // recursive: a slow reader leaves within write()
  KeptStream info_;
  Exchange work_;    // the first reader's; the generation always runs on its strand
  Exchange reader_;  // empty without a reader
  uint64_t reader_number_ = 0;
  HttpReply head_;
  std::string ping_;
  std::string ring_;  // the latest bytes
  Phase phase_ = Phase::waiting;
  bool begun_ = false, left_ = false;
  std::function<void()> gone_;
  std::optional<Clock::time_point> forget_at_;  // nothing: there is a reader
};

StreamStore::StreamStore(const StreamLimits& limits) : limits_(limits) {}

StreamStore::~StreamStore() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::string stream_owner(const HttpRequest& request) {
  if (request.account) return "key " + request.account->key().name;
  const GivenKey given = given_key(request);
  const auto& digest = given.key ? given.key : given.other;
  return digest ? "digest " + std::string(digest->begin(), digest->end()) : "";
}

std::string stream_id(const HttpRequest& request) {
  const std::string_view id = request.header("x-conversation-id");
  return is_stream_id(id) ? std::string(id) : "";
}

bool is_stream_id(std::string_view id) {
  return !id.empty() && id.size() <= kMaxIdBytes && std::ranges::all_of(id, [](char c) { return c > ' ' && c < 0x7F; });
}

// The first stream starts the thread, without which no stream is kept.
bool StreamStore::start_locked() {
  if (thread_.joinable()) return true;
  auto started = start_thread("kept streams", [this] { loop(); });
  if (started.ok()) thread_ = std::move(*started);
  return started.ok();
}

// Evicts finished streams until `bytes` more fit, counting all streams but `for_stream`.
bool StreamStore::make_room(int64_t bytes, const ResumableStream* for_stream) {
  for (;;) {
    int64_t needed = bytes;
    std::map<std::string_view, int64_t> of_owner;
    for (const auto& [key, streams] : streams_)
      for (const auto& stream : streams) {
        if (stream.get() == for_stream) continue;
        needed += stream->held_bytes();
        of_owner[key.first] += stream->held_bytes();
      }
    if (needed <= limits_.total_bytes) return true;
    const ResumableStream* evicted = nullptr;
    std::tuple<int64_t, int64_t> first;  // the owner with the most bytes, then the earliest end
    for (const auto& [key, streams] : streams_)
      for (const auto& stream : streams) {
        const KeptStream info = stream->info();
        const std::tuple<int64_t, int64_t> rank{-of_owner[key.first], info.ended_ms};
        if (!info.done || stream.get() == for_stream || (evicted && rank >= first)) continue;
        evicted = stream.get();
        first = rank;
      }
    if (!evicted) return false;
    forget(evicted);
  }
}

void StreamStore::forget(const ResumableStream* stream) {
  for (auto it = streams_.begin(); it != streams_.end(); ++it) {
    if (std::erase_if(it->second, [&](const auto& one) { return one.get() == stream; }) == 0) continue;
    if (it->second.empty()) streams_.erase(it);
    return;
  }
}

std::optional<Exchange> StreamStore::keep(const std::string& owner, const std::string& id, const Exchange& exchange,
                                          Farewell farewell) {
  if (limits_.grace_seconds <= 0) return std::nullopt;
  const auto stream = std::make_shared<ResumableStream>(*this, id, exchange, std::move(farewell));
  {
    std::lock_guard lock(mutex_);
    if (!start_locked() || !make_room(kStreamOverhead, nullptr)) return std::nullopt;
    streams_[{owner, id}].push_back(stream);
    wake();
  }
  stream->watch(0);
  Exchange kept{std::shared_ptr<AnswerTaker>(stream)};
  kept.note(exchange.facts());
  return kept;
}

bool StreamStore::admit(const std::string& owner, const std::string& id, const Exchange& kept) {
  std::shared_ptr<ResumableStream> stream;
  Streams replaced;
  bool room = false;
  {
    std::lock_guard lock(mutex_);
    const auto found = streams_.find({owner, id});
    if (found == streams_.end()) return false;
    Streams& streams = found->second;
    const auto at = std::ranges::find_if(streams, [&](const auto& one) { return one->is(kept); });
    if (at == streams.end()) return false;
    stream = *at;
    replaced.assign(streams.begin(), at);
    streams.erase(streams.begin(), at);
    room = make_room(limits_.stream_bytes, stream.get());
    if (!room) forget(stream.get());
    stream->admit(room);
  }
  for (const auto& one : replaced) one->leave(StreamEnd::replaced);
  if (room && kept.facts()) kept.facts()->kept = true;
  return room;
}

StreamStore::Found StreamStore::resume(const std::string& owner, const std::string& id, int64_t from,
                                       const HttpHeaders& headers, const Exchange& exchange) {
  std::shared_ptr<ResumableStream> stream;
  {
    std::lock_guard lock(mutex_);
    const auto found = streams_.find({owner, id});
    if (found == streams_.end()) return Found::no_stream;
    stream = found->second.front();
  }
  return stream->resume(from, headers, exchange);
}

void StreamStore::drain() {
  draining_ = true;
  Streams unread;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, streams] : streams_)
      for (const auto& stream : streams)
        if (stream->forget_at()) unread.push_back(stream);
  }
  for (const auto& stream : unread) stream->leave(StreamEnd::draining);
}

bool StreamStore::remove(const std::string& owner, const std::string& id) {
  Streams removed;
  {
    std::lock_guard lock(mutex_);
    const auto found = streams_.find({owner, id});
    if (found == streams_.end()) return false;
    removed = std::move(found->second);
    streams_.erase(found);
  }
  for (const auto& stream : removed) stream->leave(StreamEnd::removed);
  return true;
}

std::vector<KeptStream> StreamStore::find(const std::string& owner, const std::vector<std::string>& ids) const {
  std::lock_guard lock(mutex_);
  std::vector<KeptStream> out;
  for (const std::string& id : ids)
    if (const auto found = streams_.find({owner, id}); found != streams_.end())
      out.push_back(found->second.front()->info());
  return out;
}

int64_t StreamStore::size() const {
  std::lock_guard lock(mutex_);
  int64_t count = 0;
  for (const auto& [key, streams] : streams_) count += static_cast<int64_t>(streams.size());
  return count;
}

void StreamStore::loop() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    std::optional<Clock::time_point> first;
    Streams gone;
    const auto now = Clock::now();
    for (auto it = streams_.begin(); it != streams_.end();) {
      std::erase_if(it->second, [&](const auto& stream) {
        const auto at = stream->forget_at();
        if (at && *at <= now) {
          gone.push_back(stream);
          return true;
        }
        if (at) first = first ? std::min(*first, *at) : *at;
        return false;
      });
      it = it->second.empty() ? streams_.erase(it) : std::next(it);
    }
    if (!gone.empty()) {
      lock.unlock();
      for (const auto& stream : gone) stream->leave(StreamEnd::expired);
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
