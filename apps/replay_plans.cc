#include "replay_plans.h"

#include <fmt/format.h>

#include <chrono>
#include <fstream>

namespace millrace {
namespace {

constexpr size_t kLongestLine = size_t{4} << 20;  // enough for 65536 chunks

// Reads a plan file line by line.
class PlanFile {
 public:
  static Result<PlanFile> open(const std::string& path) {
    PlanFile file;
    file.path_ = path;
    file.in_.open(path, std::ios::binary);
    if (!file.in_) return Error::user(fmt::format("plans: cannot read {}", path));
    return file;
  }

  // False: end of file.
  Result<bool> next(StepPlan& plan) {
    std::string line;
    for (char c; in_.get(c) && c != '\n';) {
      if (line.size() == kLongestLine)
        return Error::user(fmt::format("plans: line {} of {} is longer than any plan", line_ + 1, path_));
      line.push_back(c);
    }
    if (line.empty() && !in_) return false;
    ++line_;
    auto read = StepPlan::parse(line);
    if (!read.ok()) return wrong(read.error().message);
    plan = std::move(*read);
    return true;
  }

  Error wrong(const std::string& what) const {
    return Error::user(fmt::format("plans: line {} of {}: {}", line_, path_, what));
  }
  const std::string& path() const { return path_; }
  int64_t line() const { return line_; }

 private:
  std::string path_;
  std::ifstream in_;
  int64_t line_ = 0;
};

class PlanReplay {
 public:
  PlanReplay(EngineCore& core, std::span<const WorkloadRequest> load, PlanFile file)
      : core_(core), load_(load), file_(std::move(file)) {
    out_.records.resize(load.size());
  }

  Result<PlannedReplay> run(int64_t vocab, const std::function<bool(int64_t, int64_t)>& progress) {
    for (size_t i = 0; i < load_.size(); ++i) {
      out_.records[i].prompt_tokens = load_[i].prompt_tokens;
      out_.records[i].tenant = load_[i].tenant;
      Request request = make_replay_request(load_[i], vocab);
      if (auto fits = core_.check(request); !fits.ok()) {  // an engine does not number requests that it rejects
        end(i, fits.error().message);
        continue;
      }
      index_of_.push_back(i);
      if (auto added = core_.add(index_of_.size(), std::move(request)); !added.ok()) end(i, added.error().message);
    }
    StepPlan plan;
    std::vector<TokenEvent> events;
    for (;;) {
      MILLRACE_TRY(const bool more, file_.next(plan));
      if (!more) break;
      if (core_.idle())
        return file_.wrong("another step after all requests are done: the requests differ from the recorded run");
      const double begin = now();
      for (RequestId id : plan.admitted) arrive(request_of(id), begin);
      events.clear();
      if (auto ran = core_.replay(plan, events); !ran.ok())
        return file_.wrong(
            fmt::format("{}; do the requests and the engine's settings match the recorded run?", ran.error().message));
      ++out_.steps;
      for (const TokenEvent& event : events) take(event);
      if (!progress(done_, static_cast<int64_t>(load_.size()) - done_)) return Error::cancelled("plans: interrupted");
    }
    if (core_.idle()) return std::move(out_);
    return Error::user(
        fmt::format("plans: {} ends after {} steps with {} of {} requests unfinished: the requests differ from the "
                    "recorded run",
                    file_.path(), out_.steps, std::ssize(load_) - done_, load_.size()));
  }

 private:
  double now() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

  void arrive(RequestId request, double at) {
    if (request < 1 || request > index_of_.size()) return;  // the engine will reject the plan
    RequestRecord& record = out_.records[index_of_[request - 1]];
    if (record.sent == 0) record.sent = record.arrival = std::max(at, 1e-9);
  }

  void end(size_t index, const std::string& error) {
    out_.records[index].finished = now();
    out_.records[index].error = error;
    ++done_;
  }

  void take(const TokenEvent& event) {
    const size_t index = index_of_[event.request - 1];
    RequestRecord& record = out_.records[index];
    if (event.token >= 0) record.tokens.push_back(now());
    if (event.finish == FinishReason::none) return;
    record.cached_tokens = event.timings.cached_tokens;
    end(index, event.finish == FinishReason::error ? event.error.message : "");
  }

  EngineCore& core_;
  std::span<const WorkloadRequest> load_;
  PlanFile file_;
  PlannedReplay out_;
  std::vector<size_t> index_of_;  // index in the load, by request number
  int64_t done_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

Result<PlannedReplay> replay_plans(EngineCore& core, std::span<const WorkloadRequest> load, int64_t vocab,
                                   const std::string& path, const std::function<bool(int64_t, int64_t)>& progress) {
  MILLRACE_TRY(PlanFile file, PlanFile::open(path));
  return PlanReplay(core, load, std::move(file)).run(vocab, progress);
}

}  // namespace millrace
