#include "replay_run.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

namespace millrace {
namespace {

// Looking for tokens this often costs little beside a step of milliseconds, and is the error of every time measured.
constexpr auto kPoll = std::chrono::microseconds(250);

struct Flight {
  size_t index;
  std::unique_ptr<Stream> stream;
};

class Replay {
 public:
  Replay(Engine& engine, std::span<const WorkloadRequest> load, const ReplayOptions& options) : engine_(engine), load_(load), options_(options), records_(load.size()) {}

  std::vector<RequestRecord> run(const std::function<bool(int64_t, int64_t)>& progress) {
    start_ = std::chrono::steady_clock::now();
    size_t next = 0;
    while (next < load_.size() || !flights_.empty()) {
      while (next < load_.size() && due(next)) send(next++);
      const bool heard = poll();
      if (!progress(static_cast<int64_t>(next - flights_.size()), static_cast<int64_t>(flights_.size()))) break;
      if (!heard) std::this_thread::sleep_for(kPoll);
    }
    for (const Flight& flight : flights_) end(flight.index, "interrupted");
    for (; next < load_.size(); ++next) {
      records_[next].arrival = records_[next].sent = now();
      end(next, "never sent: interrupted");
    }
    return std::move(records_);
  }

 private:
  double now() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

  bool due(size_t index) const {
    if (options_.closed_loop > 0) return static_cast<int64_t>(flights_.size()) < options_.closed_loop;
    return load_[index].arrival_seconds <= now();
  }

  void end(size_t index, const std::string& error) {
    records_[index].finished = now();
    records_[index].error = error;
  }

  void send(size_t index) {
    const WorkloadRequest& asked = load_[index];
    RequestRecord& record = records_[index];
    record.prompt_tokens = asked.prompt_tokens;
    record.tenant = asked.tenant;
    Request request;
    request.prompt = make_prompt(asked, options_.vocab);
    request.max_tokens = std::max<int64_t>(1, asked.output_tokens);
    request.ignore_eos = true;  // the recorded length, not the model's wish
    request.sampling.temperature = 0;
    record.sent = now();
    record.arrival = options_.closed_loop > 0 ? record.sent : asked.arrival_seconds;
    auto stream = engine_.submit(std::move(request));
    if (!stream.ok()) end(index, stream.error().message);
    else flights_.push_back({index, std::move(stream).value()});
  }

  // Takes what has come. True when there was something.
  bool poll() {
    bool heard = false;
    for (size_t i = 0; i < flights_.size();) {
      if (take(flights_[i], heard)) {
        flights_[i] = std::move(flights_.back());
        flights_.pop_back();
      } else {
        ++i;
      }
    }
    return heard;
  }

  // True when the request is over.
  bool take(Flight& flight, bool& heard) {
    RequestRecord& record = records_[flight.index];
    for (;;) {
      bool timed_out = false;
      const auto event = flight.stream->next(std::chrono::milliseconds(0), &timed_out);
      if (timed_out) break;
      if (!event) {
        end(flight.index, "the stream ended early");
        return true;
      }
      heard = true;
      if (event->token >= 0) record.tokens.push_back(now());
      if (event->finish == FinishReason::none) continue;
      record.finished = now();
      record.cached_tokens = event->timings.cached_tokens;
      if (event->finish == FinishReason::error) record.error = event->error.message;
      if (event->finish == FinishReason::cancelled) record.error = "cancelled";
      return true;
    }
    if (options_.patience > 0 && now() - record.arrival > options_.patience) {
      end(flight.index, fmt::format("took longer than {} s", options_.patience));
      return true;  // the stream's end cancels the request
    }
    return false;
  }

  Engine& engine_;
  std::span<const WorkloadRequest> load_;
  ReplayOptions options_;
  std::vector<RequestRecord> records_;
  std::vector<Flight> flights_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace

std::vector<RequestRecord> run_replay(Engine& engine, std::span<const WorkloadRequest> load, const ReplayOptions& options, const std::function<bool(int64_t, int64_t)>& progress) {
  return Replay(engine, load, options).run(progress);
}

}  // namespace millrace
