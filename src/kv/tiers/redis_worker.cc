#include "kv/tiers/redis_worker.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/start_thread.h"
#include "base/system.h"

namespace millrace {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;

constexpr int64_t kQueueBytes = int64_t{32} << 20;     // of writes; one block is always allowed
constexpr int64_t kUnsentBytes = 256 << 10;            // commands are encoded up to here, or to one block more
constexpr int64_t kMaxWriting = 256;                   // writes without a reply
constexpr int64_t kExpectedBytes = int64_t{16} << 20;  // of blocks that were asked for; one is always allowed
constexpr int64_t kLinkBytes = int64_t{4} << 20;       // of the connection, in addition to whole blocks
constexpr double kLongestBackoff = 10;
constexpr double kDrainSeconds = 5;

double seconds_since(steady_clock::time_point time) { return duration<double>(steady_clock::now() - time).count(); }
steady_clock::time_point in_seconds(double seconds) {
  return steady_clock::now() + std::chrono::duration_cast<steady_clock::duration>(duration<double>(seconds));
}
duration<double> bounded(double seconds) { return duration<double>(std::clamp(seconds, 0.0, 1e6)); }

// Whether the error will be the same at the next attempt.
bool is_refusal(const std::string& error) {
  return error.starts_with("NOAUTH") || error.starts_with("WRONGPASS") || error.starts_with("NOPERM") ||
         (error.starts_with("ERR") && error.find("max number of clients") == std::string::npos);
}

}  // namespace

RedisWorker::RedisWorker(KvPool& pool, const RedisStoreOptions& options, const ImageShape& shape,
                         const StoreIdentity& identity)
    : pool_(pool),
      options_(options),
      shape_(shape),
      identity_(identity),
      names_(fmt::format("{}:{:016x}{:016x}:", options.prefix, identity.high, identity.low)),
      link_(shape.image_bytes() + 1),
      max_queued_(std::clamp<int64_t>(kQueueBytes / shape.image_bytes(), 1, 1024) + 2 * shape.state_pieces()) {
  if (!open_pipe(wakes_)) return;
  if (auto started = start_thread("connection to Redis", [this] { loop(); }); started.ok())
    thread_ = std::move(*started);
}

RedisWorker::~RedisWorker() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    if (thread_.joinable()) wake();
  }
  if (thread_.joinable()) thread_.join();
  for (const int end : wakes_)
    if (end >= 0) ::close(end);
}

int64_t RedisWorker::max_bytes(const ImageShape& shape) {
  constexpr int64_t kCopies = 6;  // a write's image, encoded and in the socket's buffer; a reply, parsed and not
  return std::max(kQueueBytes, shape.image_bytes()) + (kCopies + 2 * shape.state_pieces()) * shape.image_bytes() +
         kLinkBytes;
}

// With the mutex. At most one byte is in the pipe, so that writing it never waits.
void RedisWorker::wake() {
  if (std::exchange(woken_, true)) return;
  const char byte = 0;
  (void)!::write(wakes_[1], &byte, 1);
}

void RedisWorker::wait_for_wake(double seconds) {
  pollfd ready{wakes_[0], POLLIN, 0};
  ::poll(&ready, 1, static_cast<int>(std::clamp(seconds, 0.0, kLongestBackoff) * 1e3) + 1);
}

// ---- The engine's side ------------------------------------------------------------------------------------

void RedisWorker::wait_for_connection(double seconds) {
  std::unique_lock lock(mutex_);
  moved_.wait_for(lock, bounded(seconds), [&] { return tried_; });
}

bool RedisWorker::connected() const {
  std::lock_guard lock(mutex_);
  return connected_;
}

std::string RedisWorker::refusal() {
  std::lock_guard lock(mutex_);
  return refusal_;
}

void RedisWorker::push(std::shared_ptr<RedisLookup> lookup) {
  std::lock_guard lock(mutex_);
  lookup->there.assign(lookup->keys.size(), 0);
  lookup->done = !connected_ || lookup->keys.empty();
  if (lookup->done) return;
  lookups_.push_back(std::move(lookup));
  wake();
}

void RedisWorker::push(std::shared_ptr<RedisLoad> load) {
  std::lock_guard lock(mutex_);
  load->states.assign(load->blocks.size(), RedisLoad::State::missing);
  load->done = !connected_ || load->blocks.empty();
  if (load->done) return;
  loads_.push_back(std::move(load));
  wake();
}

bool RedisWorker::take_room(double seconds, int64_t images) {
  std::unique_lock lock(mutex_);
  room_.wait_for(lock, bounded(seconds), [&] { return !connected_ || queued_ + images <= max_queued_; });
  if (!connected_ || queued_ + images > max_queued_) return false;
  queued_ += images;
  return true;
}

bool RedisWorker::has_room() {
  std::lock_guard lock(mutex_);
  return connected_ && queued_ < max_queued_;
}

void RedisWorker::push(RedisWrite write) {
  std::lock_guard lock(mutex_);
  if (!connected_) {
    --queued_;
    written_.push_back({write.record.key, false});
    return;
  }
  writes_.push_back(std::move(write));
  wake();
}

void RedisWorker::return_room() {
  std::lock_guard lock(mutex_);
  --queued_;
}

void RedisWorker::collect(std::vector<RedisWritten>& out) {
  std::lock_guard lock(mutex_);
  out.clear();
  std::swap(out, written_);
}

bool RedisWorker::wait_until_done(const RedisLoad& load, double seconds) {
  std::unique_lock lock(mutex_);
  return moved_.wait_for(lock, bounded(seconds), [&] { return load.done; });
}

void RedisWorker::wait_a_little() {
  std::unique_lock lock(mutex_);
  moved_.wait_for(lock, std::chrono::milliseconds(1));
}

// ---- The connection -----------------------------------------------------------------------------------------

void RedisWorker::loop() {
  std::optional<Time> drain_until;
  for (;;) {
    bool writes = false;
    {
      std::lock_guard lock(mutex_);
      char byte = 0;
      if (std::exchange(woken_, false)) (void)!::read(wakes_[0], &byte, 1);
      if (stop_ && !drain_until) drain_until = in_seconds(kDrainSeconds);
      writes = !writes_.empty() || writing_ > 0;
    }
    if (drain_until && (!link_.open() || !writes || steady_clock::now() > *drain_until)) break;
    if (!link_.open()) {
      const double wait = -seconds_since(next_attempt_);
      if (wait > 0)
        wait_for_wake(wait);
      else
        connect();
      continue;
    }
    while (send_next()) continue;
    link_.move(wakes_[0], std::min(seconds_left(), 1.0));
    if (!take_replies() || !link_.open() || seconds_left() <= 0) disconnect();
  }
  disconnect();
}

bool RedisWorker::connect() {
  const bool connected = link_.connect(options_.host, options_.port, options_.deadline_seconds) && greet();
  last_reply_ = steady_clock::now();
  if (!connected) {
    disconnect();
  } else {
    std::lock_guard lock(mutex_);
    connected_ = true;
    refusal_.clear();
  }
  {
    std::lock_guard lock(mutex_);
    tried_ = true;
  }
  moved_.notify_all();
  return connected;
}

// Logs in, chooses the database, and checks that it is Redis that answers.
bool RedisWorker::greet() {
  int64_t expected = 1;
  if (!options_.password.empty()) {
    ++expected;
    if (options_.user.empty())
      link_.send({"AUTH", options_.password});
    else
      link_.send({"AUTH", options_.user, options_.password});
  }
  if (options_.database != 0) {
    ++expected;
    link_.send({"SELECT", std::to_string(options_.database)});
  }
  link_.send({"PING"});
  const Time end = in_seconds(options_.deadline_seconds);
  while (expected > 0) {
    if (!link_.open() || steady_clock::now() > end) return false;
    link_.move(-1, -seconds_since(end));
    while (const auto reply = link_.next()) {
      if (reply->kind == RedisReply::Kind::error && is_refusal(reply->text)) {
        std::lock_guard lock(mutex_);
        refusal_ = reply->text.substr(0, 200);
      }
      if (reply->kind != RedisReply::Kind::status) return false;
      if (--expected == 0) return reply->text == "PONG";
    }
  }
  return false;
}

// Fails all that is pending.
void RedisWorker::disconnect() {
  link_.close();
  backoff_ = std::min(backoff_ > 0 ? 2 * backoff_ : options_.retry_seconds, kLongestBackoff);
  next_attempt_ = in_seconds(backoff_);
  {
    std::lock_guard lock(mutex_);
    connected_ = false;
    for (const Sent& one : sent_) {
      if (one.lookup) one.lookup->done = true;
      if (one.load) end(*one.load);
      if (!one.lookup && !one.load) written_.push_back({one.key, false});
    }
    for (const auto& lookup : lookups_) lookup->done = true;
    for (const auto& load : loads_) end(*load);
    for (const RedisWrite& write : writes_) written_.push_back({write.record.key, false});
    queued_ -= std::ssize(writes_);
    writing_ = 0;
    lookups_.clear();
    loads_.clear();
    writes_.clear();
  }
  sent_.clear();
  expected_bytes_ = 0;
  moved_.notify_all();
  room_.notify_all();
}

// Until the next reply is late.
double RedisWorker::seconds_left() const {
  if (sent_.empty()) return kLongestBackoff;
  return options_.deadline_seconds - seconds_since(std::max(last_reply_, sent_.front().at));
}

std::string RedisWorker::name_of(const PrefixKey& key) const {
  return names_ + fmt::format("{:016x}{:016x}", key.high, key.low);
}

// ---- Commands -------------------------------------------------------------------------------------------------

bool RedisWorker::send_next() {
  return link_.open() && link_.unsent_bytes() < kUnsentBytes && (send_lookup() || send_load() || send_write());
}

bool RedisWorker::send_lookup() {
  Sent command{.at = steady_clock::now()};
  {
    std::lock_guard lock(mutex_);
    while (!lookups_.empty() && lookups_.front()->given_up) lookups_.pop_front();
    if (lookups_.empty()) return false;
    command.lookup = lookups_.front();
    command.index = command.lookup->sent++;
    if (command.lookup->sent == command.lookup->keys.size()) lookups_.pop_front();
  }
  const std::string name = name_of(command.lookup->keys[command.index]);
  link_.send({"TOUCH", name});
  sent_.push_back(std::move(command));
  return true;
}

bool RedisWorker::send_load() {
  if (expected_bytes_ > 0 && expected_bytes_ + shape_.image_bytes() > kExpectedBytes) return false;
  Sent command{.at = steady_clock::now()};
  {
    std::lock_guard lock(mutex_);
    while (!loads_.empty() && loads_.front()->given_up) loads_.pop_front();
    if (loads_.empty()) return false;
    command.load = loads_.front();
    command.index = command.load->sent++;
    if (command.index == 0) command.load->began = command.at;
    if (command.load->sent == command.load->blocks.size()) loads_.pop_front();
  }
  const std::string name = name_of(command.load->blocks[command.index].key);
  link_.send({"GETRANGE", name, "0", std::to_string(shape_.image_bytes())});  // one byte more than a whole one has
  expected_bytes_ += shape_.image_bytes();
  sent_.push_back(std::move(command));
  return true;
}

bool RedisWorker::send_write() {
  RedisWrite write;
  {
    std::lock_guard lock(mutex_);
    if (writes_.empty() || writing_ >= kMaxWriting) return false;
    write = std::move(writes_.front());
    writes_.pop_front();
    ++writing_;
  }
  const std::span<uint8_t> image(write.image.data(), static_cast<size_t>(shape_.image_bytes()));
  seal_image(shape_, identity_, write.record, image);
  const std::string name = name_of(write.record.key);
  const std::string_view bytes(reinterpret_cast<const char*>(image.data()), image.size());
  if (options_.ttl_seconds > 0)
    link_.send({"SET", name, bytes, "EX", std::to_string(options_.ttl_seconds)});
  else
    link_.send({"SET", name, bytes});
  sent_.push_back({.key = write.record.key, .at = steady_clock::now()});
  {
    std::lock_guard lock(mutex_);
    --queued_;
  }
  room_.notify_all();
  return true;
}

// ---- Replies --------------------------------------------------------------------------------------------------

// False: the server has sent what no command asked for.
bool RedisWorker::take_replies() {
  bool any = false;
  while (const auto reply = link_.next()) {
    if (sent_.empty() || !take(sent_.front(), *reply)) return false;
    if (sent_.front().load) expected_bytes_ -= shape_.image_bytes();
    sent_.pop_front();
    any = true;
  }
  if (!any) return true;
  last_reply_ = steady_clock::now();
  backoff_ = 0;
  moved_.notify_all();
  return true;
}

bool RedisWorker::take(const Sent& sent, const RedisReply& reply) {
  if (sent.lookup) return take_found(*sent.lookup, sent.index, reply);
  if (sent.load) return take_block(*sent.load, sent.index, reply);
  return take_written(sent.key, reply);
}

bool RedisWorker::take_found(RedisLookup& lookup, size_t index, const RedisReply& reply) {
  using Kind = RedisReply::Kind;
  if (reply.kind != Kind::integer && reply.kind != Kind::error) return false;
  std::lock_guard lock(mutex_);
  lookup.there[index] = reply.kind == Kind::integer && reply.integer > 0;
  if (++lookup.answered == lookup.keys.size()) lookup.done = true;
  return true;
}

// Verifies outside of the lock and copies under it: after give_up() nothing more is written.
bool RedisWorker::take_block(RedisLoad& load, size_t index, const RedisReply& reply) {
  using Kind = RedisReply::Kind;
  if (reply.kind != Kind::bytes && reply.kind != Kind::error) return false;
  const RedisLoad::Block& block = load.blocks[index];
  const std::span image(reinterpret_cast<const uint8_t*>(reply.text.data()), reply.text.size());
  RedisLoad::State state = RedisLoad::State::missing;
  if (reply.kind == Kind::bytes && !image.empty())
    state = is_image_of({block.key, block.parent, block.tokens}, shape_, identity_, image) ? RedisLoad::State::good
                                                                                           : RedisLoad::State::damaged;
  std::lock_guard lock(mutex_);
  if (state == RedisLoad::State::good && !load.given_up) copy_parts_in(pool_, block.into, shape_, image);
  load.states[index] = state;
  if (++load.answered == load.blocks.size()) end(load);
  return true;
}

bool RedisWorker::take_written(const PrefixKey& key, const RedisReply& reply) {
  using Kind = RedisReply::Kind;
  if (reply.kind != Kind::status && reply.kind != Kind::error) return false;
  std::lock_guard lock(mutex_);
  --writing_;
  written_.push_back({key, reply.kind == Kind::status && reply.text == "OK"});
  return true;
}

// With the mutex.
void RedisWorker::end(RedisLoad& load) {
  load.done = true;
  if (load.sent > 0) load.seconds = seconds_since(load.began);
}

}  // namespace millrace
