// StreamStore: streams that outlive their connection. A request opts in with an X-Conversation-Id header. Its stream is
// buffered in a ring, and a client that lost the connection can resume it under the same id. Thread-safe.
//
//   generation -> [ ... 81920 | 81984 | 82049 | ] -> reader     each event carries `id: OFFSET`, the next one's start
//                  dropped      ring of bytes        a new reader gives its offset: ?from=, or Last-Event-ID
//
// A stream waits first: its request has arrived, but its model is being loaded or its constraint compiled. A waiting
// stream is found under its id, and ends when its reader leaves. Once the request is admitted, the stream replaces all
// older ones with its id, and is buffered: without a reader, generation continues for the grace time, and the bytes are
// retained for the keep time after the end. A request that is refused replaces nothing.
//
//   waiting --admit--> buffered --> done         passed on: admitted without room, so that it ends with its reader
//      |           '-> passed on --> done
//      '----------------------------> done
//
// Each way to `done` (over()) sends its reader exactly one end, whether or not the stream has begun: the generation's
// own, or a farewell. StreamEnd lists the farewells.
//
// The total size is bounded: finished streams are evicted first, those of the owner with the most bytes before others,
// and if that is not enough, a new stream is passed on.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
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

// Why the store ends a stream, or one of its readers.
enum class StreamEnd {
  replaced,      // another request with its id was admitted
  removed,       // deleted by a client
  expired,       // no reader came back within the grace time, or a waiting stream's reader left
  other_reader,  // only this reader ends: another one reads the stream now
  draining,      // the server stops, and there is no reader
};
// The error that describes `why` in the request's API format. Thread-safe; must not call the store.
using Farewell = std::function<FinalReply(StreamEnd why)>;

class ResumableStream;

class StreamStore {
 public:
  explicit StreamStore(const StreamLimits& limits);
  ~StreamStore();

  // Wraps `exchange`: the generation writes to the result, a waiting stream with this owner and id. Returns nothing if
  // there is no room.
  std::optional<Exchange> keep(const std::string& owner, const std::string& id, const Exchange& exchange,
                               Farewell farewell);
  // The request is accepted: `kept`, a result of keep(), replaces older streams with its id, and is buffered from now
  // on. False: it is passed on, as there is no room, or has ended, or was not kept.
  bool admit(const std::string& owner, const std::string& id, const Exchange& kept);

  enum class Found { yes, no_stream, too_old, too_far };
  // Sends the stream to `exchange` from byte `from` on, replacing the previous reader. Unless it returns `yes`, the
  // caller must reply.
  Found resume(const std::string& owner, const std::string& id, int64_t from, const HttpHeaders& headers,
               const Exchange& exchange);

  // Cancels and deletes the stream, and those that wait to replace it. False: not found.
  bool remove(const std::string& owner, const std::string& id);
  std::vector<KeptStream> find(const std::string& owner, const std::vector<std::string>& ids) const;
  int64_t size() const;
  // Cancels streams without a reader, now and in the future.
  void drain();

 private:
  friend class ResumableStream;
  using Clock = std::chrono::steady_clock;
  using Key = std::pair<std::string, std::string>;
  using Streams = std::vector<std::shared_ptr<ResumableStream>>;
  void loop();
  // Called with the mutex held.
  bool start_locked();
  bool make_room(int64_t bytes, const ResumableStream* for_stream);
  void forget(const ResumableStream* stream);
  void wake() { wake_.notify_all(); }

  const StreamLimits limits_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  // streams of an id, in order of arrival: at most one admitted stream, then waiting ones
  std::map<Key, Streams> streams_;
  bool stop_ = false;
  std::atomic<bool> draining_{false};
  std::thread thread_;  // from the first stream on: cancels streams without a reader, and deletes expired ones
};

// The stream id of a request, from its X-Conversation-Id header; "": do not buffer. The owner identifies the request's
// key by its name, or its digest on a server without keys: never by its text.
std::string stream_id(const HttpRequest& request);
std::string stream_owner(const HttpRequest& request);
bool is_stream_id(std::string_view id);

// Adds `id: OFFSET` before each event of an event stream that starts at offset `at`. Comments are unchanged.
std::string with_event_ids(const std::string& events, int64_t at);

}  // namespace millrace
