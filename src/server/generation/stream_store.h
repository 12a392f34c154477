// StreamStore: streams that outlive their connection. A request that asks for it, with a header X-Conversation-Id, has
// the bytes of its stream kept in a ring; who lost the connection reads on from there under the same id. Thread-safe.
//
//   generation -> [ ... 81920 | 81984 | 82049 | ] -> reader       each event carries `id: OFFSET`, where the next
//   begins
//                  dropped      a ring of bytes        a new reader names the offset it has: ?from=, or Last-Event-ID
//
// While nobody reads, the work goes on for the grace time; what was written stays for the keep time after the end. The
// bytes of all streams together are bounded: those that have ended go first, and when that is not enough a new stream
// is not kept.
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
  double grace_seconds = 60;  // without a reader, before the work ends; 0: streams are never kept
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

  // What a generation is to answer instead of `exchange`: the same, kept under `id`, which is `owner`'s. One that had
  // the id before ends. Nothing: there is no room.
  std::optional<Exchange> keep(const std::string& owner, const std::string& id, const Exchange& exchange);

  enum class Found { yes, no_stream, too_old, too_far };
  // Has the stream sent to `exchange` from byte `from` on, in place of who read it before. Otherwise nothing is
  // answered.
  Found resume(const std::string& owner, const std::string& id, int64_t from, const HttpHeaders& headers,
               const Exchange& exchange);

  // Ends its work, and forgets it. False: there is none.
  bool remove(const std::string& owner, const std::string& id);
  std::vector<KeptStream> find(const std::string& owner, const std::vector<std::string>& ids) const;
  int64_t size() const;
  // Ends the work that nobody reads, now and from now on.
  void drain();

 private:
  friend class ResumableStream;
  using Clock = std::chrono::steady_clock;
  using Key = std::pair<std::string, std::string>;
  void loop();
  bool make_room();
  void look_at_clock() { wake_.notify_all(); }

  const StreamLimits limits_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<Key, std::shared_ptr<ResumableStream>> streams_;
  bool stop_ = false;
  std::atomic<bool> draining_{false};
  std::thread thread_;  // ends what nobody reads any more, and forgets
};

// The id under which a request wants its stream kept, of its header X-Conversation-Id; "": it does not. And whose it
// is: who comes with the same key.
std::string stream_id(const HttpRequest& request);
std::string stream_owner(const HttpRequest& request);
bool is_stream_id(std::string_view id);

// An event stream with `id: OFFSET` before each of its events, the first of which begins at `at`; comments stay as they
// are.
std::string with_event_ids(const std::string& events, int64_t at);

}  // namespace millrace
