#include "replay/replay_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace millrace {
namespace {

// Tokens are timed on the engine's thread. This thread sleeps until a request is due or has ended: polling for tokens
// would take CPU time from the engine it measures.
class LoadReplay {
 public:
  LoadReplay(Engine& engine, std::span<const WorkloadRequest> load, const ReplayOptions& options)
      : engine_(engine), load_(load), options_(options), records_(load.size()), ids_(load.size()), over_(load.size()) {}

  std::vector<RequestRecord> run(const std::function<bool(int64_t, int64_t)>& progress) {
    start_ = std::chrono::steady_clock::now();
    size_t next = 0;
    for (bool going = true; going && (next < load_.size() || in_flight() > 0);) {
      while (next < load_.size() && due(next)) send(next++);
      wait(next);
      end_late(next);
      going = progress(static_cast<int64_t>(next) - in_flight(), in_flight());
    }
    const bool stopped = next < load_.size() || in_flight() > 0;
    for (size_t i = 0; i < next && stopped; ++i) give_up(i, "interrupted");
    for (; next < load_.size(); ++next) {
      records_[next].arrival = records_[next].sent = now();
      end(next, "never sent: interrupted");
    }
    // The engine refers to this object until the last event of each request.
    std::unique_lock lock(mutex_);
    moved_.wait(lock, [&] { return heard_ == submitted_; });
    return std::move(records_);
  }

 private:
  double now() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  int64_t in_flight() {
    std::lock_guard lock(mutex_);
    return in_flight_;
  }

  bool due(size_t index) {
    if (options_.closed_loop > 0) return in_flight() < options_.closed_loop;
    return load_[index].arrival_seconds <= now();
  }

  // Waits until the next request is due, one has ended, or the progress display must be updated.
  void wait(size_t next) {
    constexpr double kShow = 0.1;
    double until = now() + kShow;
    if (next < load_.size() && options_.closed_loop == 0) until = std::min(until, load_[next].arrival_seconds);
    std::unique_lock lock(mutex_);
    moved_.wait_until(
        lock,
        start_ + std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(until)),
        [&] { return std::exchange(ended_, false); });
  }

  // Called with the mutex held, except for requests not submitted to the engine.
  void end(size_t index, const std::string& error) {
    records_[index].finished = now();
    records_[index].error = error;
    over_[index] = 1;
  }

  void send(size_t index) {
    const WorkloadRequest& from = load_[index];
    RequestRecord& record = records_[index];
    record.prompt_tokens = from.prompt_tokens;
    record.tenant = from.tenant;
    Request request = make_replay_request(from, options_.vocab);
    record.sent = now();
    record.arrival = options_.closed_loop > 0 ? record.sent : from.arrival_seconds;
    {
      std::lock_guard lock(mutex_);
      ++in_flight_, ++submitted_;
    }
    auto id = engine_.submit(std::move(request), [this, index](TokenEvent&& event) { take(index, event); });
    if (id.ok()) {
      ids_[index] = *id;
      return;
    }
    std::lock_guard lock(mutex_);
    --in_flight_, --submitted_;
    end(index, id.error().message);
  }

  // Called on the engine's thread.
  void take(size_t index, const TokenEvent& event) {
    std::lock_guard lock(mutex_);
    RequestRecord& record = records_[index];
    const bool over = over_[index] != 0;
    if (event.token >= 0 && !over) record.tokens.push_back(now());
    if (!event.last) return;
    if (!over) {
      record.cached_tokens = event.timings.cached_tokens;
      end(index, event.finish == FinishReason::error       ? event.error.message
                 : event.finish == FinishReason::cancelled ? "cancelled"
                                                           : "");
      --in_flight_;
    }
    ++heard_;
    ended_ = true;
    moved_.notify_one();
  }

  void give_up(size_t index, const std::string& error) {
    {
      std::lock_guard lock(mutex_);
      if (over_[index]) return;
      end(index, error);
      --in_flight_;
    }
    engine_.cancel(ids_[index]);
  }

  void end_late(size_t sent) {
    if (options_.patience <= 0) return;
    for (size_t i = first_open_; i < sent; ++i) {
      bool late;
      {
        std::lock_guard lock(mutex_);
        if (over_[i] && i == first_open_) ++first_open_;
        late = !over_[i] && now() - records_[i].arrival > options_.patience;
      }
      if (late) give_up(i, fmt::format("took longer than {} s", options_.patience));
    }
  }

  Engine& engine_;
  std::span<const WorkloadRequest> load_;
  ReplayOptions options_;
  std::vector<RequestRecord> records_;
  std::vector<RequestId> ids_;
  size_t first_open_ = 0;  // all earlier requests are over
  std::chrono::steady_clock::time_point start_;

  std::mutex mutex_;  // guards records of submitted requests and the members below
  std::condition_variable moved_;
  std::vector<char> over_;
  int64_t in_flight_ = 0, submitted_ = 0, heard_ = 0;
  bool ended_ = false;
};

}  // namespace

Request make_replay_request(const WorkloadRequest& from, int64_t vocab) {
  Request request;
  request.prompt = make_prompt(from, vocab);
  request.documents = prompt_documents(from);
  request.max_tokens = std::max<int64_t>(1, from.output_tokens);
  request.ignore_eos = true;
  request.sampling.temperature = 0;
  return request;
}

std::vector<RequestRecord> run_replay(Engine& engine, std::span<const WorkloadRequest> load,
                                      const ReplayOptions& options,
                                      const std::function<bool(int64_t, int64_t)>& progress) {
  return LoadReplay(engine, load, options).run(progress);
}

}  // namespace millrace
