// RemoteWorker: the thread that talks to another process for a prefix store (remote_store.h). The engine's thread
// pushes lookups, loads and writes; the worker sends them over its link (remote_link.h), one command for each block,
// lookups and loads first, and verifies what arrives (block_image.h).
//
// A connection whose oldest command has no reply within the deadline, or that sends anything unexpected, is closed.
// Then everything pending fails at once, everything pushed fails at once, and the worker connects again, after
// retry_seconds, then twice as long each time up to 10 s. Public functions are for one thread.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kv/tiers/block_image.h"
#include "kv/tiers/remote_link.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

// Parameters are const once they are pushed; progress is guarded by the worker's mutex.
struct RemoteLookup {
  std::vector<PrefixKey> keys;
  uint64_t lease = 0;  // lease under which the blocks are asked for; 0: none

  std::vector<char> there;  // per key
  size_t sent = 0, answered = 0;
  bool given_up = false, done = false;
};

struct RemoteLoad {
  enum class State : uint8_t { missing, good, damaged };
  struct Block {
    PrefixKey key, parent;
    std::vector<TokenId> tokens;
    ImagePlace into = BlockId{-1};
  };
  std::vector<Block> blocks;
  uint64_t lease = 0;  // as in the lookup

  std::vector<State> states;  // per block
  size_t sent = 0, answered = 0;
  bool given_up = false, done = false;
  std::chrono::steady_clock::time_point began;
  double seconds = 0;  // from the first command to the last reply
};

struct RemoteWrite {
  StoreRecord record;
  AlignedBuffer image;  // whose parts are there; the worker seals it
};
struct RemoteWritten {
  PrefixKey key;
  bool ok = false;
};

class RemoteWorker {
 public:
  RemoteWorker(KvPool& pool, std::unique_ptr<RemoteLink> link, const RemoteTimes& times, const ImageShape& shape,
               const StoreIdentity& identity);
  ~RemoteWorker();  // completes pending writes, for as long as the server accepts them, at most kDrainSeconds
  RemoteWorker(const RemoteWorker&) = delete;
  RemoteWorker& operator=(const RemoteWorker&) = delete;
  bool started() const { return thread_.joinable(); }  // false: the system started no thread; do not use it

  // Waits up to `seconds` for the end of the first attempt to connect.
  void wait_for_connection(double seconds);
  bool connected() const;
  std::string refusal();  // the server's words if it refused the connection, such as a wrong password; "": it did not

  void push(std::shared_ptr<RemoteLookup> lookup);
  void push(std::shared_ptr<RemoteLoad> load);
  // Waits up to `seconds` for room for `images` in the queue of writes. False: none; else a push() of each follows.
  bool take_room(double seconds, int64_t images = 1);
  bool has_room();
  void push(RemoteWrite write);
  void return_room();                             // in place of the push
  void collect(std::vector<RemoteWritten>& out);  // writes that have ended since the last call

  // After the return no byte of the load reaches the pool.
  template <typename Job>
  void give_up(Job& job) {
    std::lock_guard lock(mutex_);
    job.given_up = true;
  }
  // Runs `look` while no job changes.
  template <typename Look>
  void look_at(Look&& look) {
    std::lock_guard lock(mutex_);
    look();
  }
  bool wait_until_done(const RemoteLoad& load, double seconds);  // returns true if the load is done
  void wait_a_little();                                          // until some job makes progress

  static int64_t max_bytes(const ImageShape& shape);  // limit of its queue and buffers

 private:
  using Time = std::chrono::steady_clock::time_point;
  // A command without a reply yet.
  struct Sent {
    std::shared_ptr<RemoteLookup> lookup;
    std::shared_ptr<RemoteLoad> load;
    size_t index = 0;  // index of its key or block
    PrefixKey key;     // the key of a write
    Time at;
  };
  void loop();
  bool connect();
  void disconnect();
  bool send_next();
  bool send_lookup();
  bool send_load();
  bool send_write();
  bool take_replies();
  bool take(const Sent& sent, const RemoteReply& reply);
  bool take_found(RemoteLookup& lookup, size_t index, const RemoteReply& reply);
  bool take_block(RemoteLoad& load, size_t index, const RemoteReply& reply);
  bool take_written(const PrefixKey& key, const RemoteReply& reply);
  void end(RemoteLoad& load);
  double seconds_left() const;
  void wake();
  void wait_for_wake(double seconds);

  KvPool& pool_;
  const RemoteTimes times_;
  const ImageShape shape_;
  const StoreIdentity identity_;
  const std::unique_ptr<RemoteLink> link_;
  std::deque<Sent> sent_;
  int64_t expected_bytes_ = 0;  // bytes of blocks whose replies have not arrived
  Time last_reply_;
  double backoff_ = 0;
  Time next_attempt_;
  std::array<int, 2> wakes_{-1, -1};

  mutable std::mutex mutex_;
  std::condition_variable moved_, room_;
  bool stop_ = false, connected_ = false, tried_ = false, woken_ = false;
  std::string refusal_;
  std::deque<std::shared_ptr<RemoteLookup>> lookups_;
  std::deque<std::shared_ptr<RemoteLoad>> loads_;
  std::deque<RemoteWrite> writes_;
  int64_t queued_ = 0, max_queued_;  // images, with those whose room was taken
  int64_t writing_ = 0;              // sent, without a reply yet
  std::vector<RemoteWritten> written_;
  std::thread thread_;
};

}  // namespace millrace
