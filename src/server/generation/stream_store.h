// StreamStore: streams that outlive their connection. A request opts in with an X-Conversation-Id header. Its stream is
// buffered in a ring, and a client that lost the connection can resume it under the same id. Thread-safe.
//
//   generation -> [ ... 81920 | 81984 | 82049 | ] -> reader     each event carries `id: OFFSET`, the next one's start
//                  dropped      ring of bytes        a new reader gives its offset: ?from=, or Last-Event-ID
//
// Without a reader, generation continues for the grace time. The buffered bytes are retained for the keep time after
// the end. The total size is bounded: finished streams are evicted first, and if that is not enough, a new stream is
// not buffered.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server/http/http.h"

namespace millrace {

struct StreamLimits {
  double grace_seconds = 60;  // without a reader, before generation is cancelled; 0: streams are not buffered
  double keep_seconds = 300;  // after the end
  int64_t stream_bytes = int64_t{4} << 20;
  int64_t total_bytes = int64_t{64} << 20;
};

struct KeptStream {
  std::string id;
  bool done = false;
  int64_t bytes = 0;                     // written so far
  int64_t started_ms = 0, ended_ms = 0;  // Unix time; 0: not yet
};

class ResumableStream;

class StreamStore {
 public:
  explicit StreamStore(const StreamLimits& limits);
  ~StreamStore();

  // Wraps `exchange`: the generation writes to the result, which buffers the stream under `owner` and `id`. Cancels an
  // earlier stream with this id. Returns nothing if there is no room.
  std::optional<Exchange> keep(const std::string& owner, const std::string& id, const Exchange& exchange);

  enum class Found { yes, no_stream, too_old, too_far };
  // Sends the stream to `exchange` from byte `from` on, replacing the previous reader. Unless it returns `yes`, the
  // caller must reply.
  Found resume(const std::string& owner, const std::string& id, int64_t from, const HttpHeaders& headers,
               const Exchange& exchange);

  // Cancels and deletes the stream. False: not found.
  bool remove(const std::string& owner, const std::string& id);
  std::vector<KeptStream> find(const std::string& owner, const std::vector<std::string>& ids) const;
  int64_t size() const;
  // Cancels streams without a reader, now and in the future.
  void drain();

 private:
  friend class ResumableStream;
  using Clock = std::chrono::steady_clock;
  using Key = std::pair<std::string, std::string>;
  void loop();
  bool make_room();
  void wake() { wake_.notify_all(); }

  const StreamLimits limits_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<Key, std::shared_ptr<ResumableStream>> streams_;
  bool stop_ = false;
  std::atomic<bool> draining_{false};
  std::thread thread_;  // cancels streams without a reader, and deletes expired ones
};

// The stream id of a request, from its X-Conversation-Id header; "": do not buffer. The owner is the request's key.
std::string stream_id(const HttpRequest& request);
std::string stream_owner(const HttpRequest& request);
bool is_stream_id(std::string_view id);

// Adds `id: OFFSET` before each event of an event stream that starts at offset `at`. Comments are unchanged.
std::string with_event_ids(const std::string& events, int64_t at);

}  // namespace millrace
