#include "kv/tiers/remote_worker.h"

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

}  // namespace

RemoteWorker::RemoteWorker(KvPool& pool, std::unique_ptr<RemoteLink> link, const RemoteTimes& times,
                           const ImageShape& shape, const StoreIdentity& identity)
    : pool_(pool),
      times_(times),
      shape_(shape),
      identity_(identity),
      link_(std::move(link)),
      max_queued_(std::clamp<int64_t>(kQueueBytes / shape.image_bytes(), 1, 1024) + 2 * shape.state_pieces()) {
  if (!open_pipe(wakes_)) return;
  if (auto started = start_thread("connection to a store", [this] { loop(); }); started.ok())
    thread_ = std::move(*started);
}

RemoteWorker::~RemoteWorker() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    if (thread_.joinable()) wake();
  }
  if (thread_.joinable()) thread_.join();
  for (const int end : wakes_)
    if (end >= 0) ::close(end);
}

int64_t RemoteWorker::max_bytes(const ImageShape& shape) {
  constexpr int64_t kCopies = 6;  // a write's image, encoded and in the socket's buffer; a reply, parsed and not
  return std::max(kQueueBytes, shape.image_bytes()) + (kCopies + 2 * shape.state_pieces()) * shape.image_bytes() +
         kLinkBytes;
}

// With the mutex. At most one byte is in the pipe, so that writing it never waits.
void RemoteWorker::wake() {
  if (std::exchange(woken_, true)) return;
  const char byte = 0;
  (void)!::write(wakes_[1], &byte, 1);
}

void RemoteWorker::wait_for_wake(double seconds) {
  pollfd ready{wakes_[0], POLLIN, 0};
  ::poll(&ready, 1, static_cast<int>(std::clamp(seconds, 0.0, kLongestBackoff) * 1e3) + 1);
}

// ---- The engine's side ------------------------------------------------------------------------------------

void RemoteWorker::wait_for_connection(double seconds) {
  std::unique_lock lock(mutex_);
  moved_.wait_for(lock, bounded(seconds), [&] { return tried_; });
}

bool RemoteWorker::connected() const {
  std::lock_guard lock(mutex_);
  return connected_;
}

std::string RemoteWorker::refusal() {
  std::lock_guard lock(mutex_);
  return refusal_;
}

void RemoteWorker::push(std::shared_ptr<RemoteLookup> lookup) {
  std::lock_guard lock(mutex_);
  lookup->there.assign(lookup->keys.size(), 0);
  lookup->done = (tried_ && !connected_) || lookup->keys.empty();
  if (lookup->done) return;
  lookups_.push_back(std::move(lookup));
  wake();
}

void RemoteWorker::push(std::shared_ptr<RemoteLoad> load) {
  std::lock_guard lock(mutex_);
  load->states.assign(load->blocks.size(), RemoteLoad::State::missing);
  load->done = (tried_ && !connected_) || load->blocks.empty();
  if (load->done) return;
  loads_.push_back(std::move(load));
  wake();
}

bool RemoteWorker::take_room(double seconds, int64_t images) {
  std::unique_lock lock(mutex_);
  room_.wait_for(lock, bounded(seconds), [&] { return !connected_ || queued_ + images <= max_queued_; });
  if (!connected_ || queued_ + images > max_queued_) return false;
  queued_ += images;
  return true;
}

bool RemoteWorker::has_room() {
  std::lock_guard lock(mutex_);
  return connected_ && queued_ < max_queued_;
}

void RemoteWorker::push(RemoteWrite write) {
  std::lock_guard lock(mutex_);
  if (!connected_) {
    --queued_;
    written_.push_back({write.record.key, false});
    return;
  }
  writes_.push_back(std::move(write));
  wake();
}

void RemoteWorker::return_room() {
  std::lock_guard lock(mutex_);
  --queued_;
}

void RemoteWorker::collect(std::vector<RemoteWritten>& out) {
  std::lock_guard lock(mutex_);
  out.clear();
  std::swap(out, written_);
}

bool RemoteWorker::wait_until_done(const RemoteLoad& load, double seconds) {
  std::unique_lock lock(mutex_);
  return moved_.wait_for(lock, bounded(seconds), [&] { return load.done; });
}

void RemoteWorker::wait_a_little() {
  std::unique_lock lock(mutex_);
  moved_.wait_for(lock, std::chrono::milliseconds(1));
}

// ---- The connection -----------------------------------------------------------------------------------------

void RemoteWorker::loop() {
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
    if (drain_until && (!link_->open() || !writes || steady_clock::now() > *drain_until)) break;
    if (!link_->open()) {
      const double wait = -seconds_since(next_attempt_);
      if (wait > 0)
        wait_for_wake(wait);
      else
        connect();
      continue;
    }
    while (send_next()) continue;
    link_->move(wakes_[0], std::min(seconds_left(), 1.0));
    if (!take_replies() || !link_->open() || seconds_left() <= 0) disconnect();
  }
  disconnect();
}

bool RemoteWorker::connect() {
  std::string refusal;
  const bool connected = link_->connect(times_.deadline_seconds, refusal);
  last_reply_ = steady_clock::now();
  {
    std::lock_guard lock(mutex_);
    tried_ = true;
    connected_ = connected;
    refusal_ = std::move(refusal);
  }
  if (!connected) disconnect();
  moved_.notify_all();
  return connected;
}

// Fails all that is pending.
void RemoteWorker::disconnect() {
  link_->close();
  backoff_ = std::min(backoff_ > 0 ? 2 * backoff_ : times_.retry_seconds, kLongestBackoff);
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
    for (const RemoteWrite& write : writes_) written_.push_back({write.record.key, false});
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
double RemoteWorker::seconds_left() const {
  if (sent_.empty()) return kLongestBackoff;
  return times_.deadline_seconds - seconds_since(std::max(last_reply_, sent_.front().at));
}

// ---- Commands -------------------------------------------------------------------------------------------------

bool RemoteWorker::send_next() {
  return link_->open() && link_->unsent_bytes() < kUnsentBytes && (send_lookup() || send_load() || send_write());
}

bool RemoteWorker::send_lookup() {
  Sent command{.at = steady_clock::now()};
  {
    std::lock_guard lock(mutex_);
    while (!lookups_.empty() && lookups_.front()->given_up) lookups_.pop_front();
    if (lookups_.empty()) return false;
    command.lookup = lookups_.front();
    command.index = command.lookup->sent++;
    if (command.lookup->sent == command.lookup->keys.size()) lookups_.pop_front();
  }
  link_->ask(command.lookup->keys[command.index], command.lookup->lease);
  sent_.push_back(std::move(command));
  return true;
}

bool RemoteWorker::send_load() {
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
  link_->fetch(command.load->blocks[command.index].key, command.load->lease);
  expected_bytes_ += shape_.image_bytes();
  sent_.push_back(std::move(command));
  return true;
}

bool RemoteWorker::send_write() {
  RemoteWrite write;
  {
    std::lock_guard lock(mutex_);
    if (writes_.empty() || writing_ >= kMaxWriting) return false;
    write = std::move(writes_.front());
    writes_.pop_front();
    ++writing_;
  }
  const std::span<uint8_t> image(write.image.data(), static_cast<size_t>(shape_.image_bytes()));
  seal_image(shape_, identity_, write.record, image);
  link_->store(write.record.key, {reinterpret_cast<const char*>(image.data()), image.size()});
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
bool RemoteWorker::take_replies() {
  bool any = false;
  while (const auto reply = link_->next()) {
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

bool RemoteWorker::take(const Sent& sent, const RemoteReply& reply) {
  if (sent.lookup) return take_found(*sent.lookup, sent.index, reply);
  if (sent.load) return take_block(*sent.load, sent.index, reply);
  return take_written(sent.key, reply);
}

bool RemoteWorker::take_found(RemoteLookup& lookup, size_t index, const RemoteReply& reply) {
  using Kind = RemoteReply::Kind;
  if (reply.kind != Kind::integer && reply.kind != Kind::error) return false;
  std::lock_guard lock(mutex_);
  lookup.there[index] = reply.kind == Kind::integer && reply.integer > 0;
  if (++lookup.answered == lookup.keys.size()) lookup.done = true;
  return true;
}

// Verifies outside of the lock and copies under it: after give_up() nothing more is written.
bool RemoteWorker::take_block(RemoteLoad& load, size_t index, const RemoteReply& reply) {
  using Kind = RemoteReply::Kind;
  if (reply.kind != Kind::bytes && reply.kind != Kind::error) return false;
  const RemoteLoad::Block& block = load.blocks[index];
  const std::string_view bytes = reply.bytes();
  const std::span image(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  RemoteLoad::State state = RemoteLoad::State::missing;
  if (reply.kind == Kind::bytes && !image.empty())
    state = is_image_of({block.key, block.parent, block.tokens}, shape_, identity_, image) ? RemoteLoad::State::good
                                                                                           : RemoteLoad::State::damaged;
  std::lock_guard lock(mutex_);
  if (state == RemoteLoad::State::good && !load.given_up) copy_parts_in(pool_, block.into, shape_, image);
  load.states[index] = state;
  if (++load.answered == load.blocks.size()) end(load);
  return true;
}

bool RemoteWorker::take_written(const PrefixKey& key, const RemoteReply& reply) {
  using Kind = RemoteReply::Kind;
  if (reply.kind != Kind::status && reply.kind != Kind::error) return false;
  std::lock_guard lock(mutex_);
  --writing_;
  written_.push_back({key, reply.kind == Kind::status && reply.text == "OK"});
  return true;
}

// With the mutex.
void RemoteWorker::end(RemoteLoad& load) {
  load.done = true;
  if (load.sent > 0) load.seconds = seconds_since(load.began);
}

}  // namespace millrace
