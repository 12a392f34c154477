#include "server/generation/prompt_reads.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>

#include "server/models/served_model.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kAtOnce = 8;  // requests in the engine: enough to fill its steps
constexpr int64_t kPlaces = 4;  // and of its places at most one in so many, since several workers read at once
constexpr auto kLook = std::chrono::milliseconds(20);
constexpr double kMinSeconds = 1e-3;
constexpr const char* kLate = "timeout: the request timed out while its prompt was being read";

// What the engine's thread reports.
struct Progress {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t open = 0;
  std::vector<size_t> refused;  // prompts, by a full queue
  Result<void> failed;

  // A request that did not become a stream has no timings.
  void end(size_t prompt, const TokenEvent& event) {
    std::lock_guard lock(mutex);
    --open;
    const bool error = event.finish == FinishReason::error;
    if (error && event.error.kind == ErrorKind::resource && event.timings.prompt_tokens == 0)
      refused.push_back(prompt);
    else if (failed.ok() && error)
      failed = event.error;
    if (failed.ok() && event.finish == FinishReason::cancelled) failed = Error::cancelled("the engine has stopped");
    if (failed.ok() && event.finish == FinishReason::time_limit) failed = Error::cancelled(kLate);
    changed.notify_one();
  }
};

// Cancels what it has not seen end.
class Reading {
 public:
  Reading(Engine& engine, const std::vector<PromptRead>& prompts, const ReadTerms& terms)
      : engine_(engine), prompts_(prompts), terms_(terms), priority_(terms.share.priority) {
    progress_->refused.reserve(prompts.size());
    ids_.resize(prompts.size());
  }
  ~Reading() {
    if (done_) return;
    try {
      for (RequestId id : ids_)
        if (id != 0) engine_.cancel(id);
    } catch (const std::bad_alloc&) {  // they run to their ends
    }
  }

  // Submits one of the prompts that are not in the engine. False: the queue is full. Errors: of the request.
  Result<bool> submit() {
    const size_t prompt = take();
    Request request;
    request.prompt = prompts_[prompt].tokens;
    request.reader = prompts_[prompt].reader;
    request.max_tokens = 0;
    request.evictor = "none";
    request.exit = "none";
    request.document_context = "none";
    request.tenant = terms_.share.engine_tenant;
    request.priority = priority_;
    if (const auto until = terms_.share.until)
      request.time_limit_seconds = std::max(kMinSeconds, std::chrono::duration<double>(*until - Clock::now()).count());
    MILLRACE_TRY_VOID(engine_.check(request));
    {
      std::lock_guard lock(progress_->mutex);
      ++progress_->open;
    }
    auto sink = [progress = progress_, prompt](TokenEvent&& event) {
      if (event.last) progress->end(prompt, event);
    };
    auto id = engine_.submit(std::move(request), std::move(sink), terms_.place);
    if (id.ok()) {
      ids_[prompt] = *id;
      return true;
    }
    std::lock_guard lock(progress_->mutex);
    --progress_->open;
    if (id.error().kind != ErrorKind::resource || engine_.liveness().stopped) return id.error();
    progress_->refused.push_back(prompt);
    return false;
  }

  struct Left {
    bool submit = false;   // a prompt is not in the engine
    bool refused = false;  // the next one was
    bool done = false;     // all are read
    int64_t open = 0;      // are in the engine
  };
  Left left() const {
    std::lock_guard lock(progress_->mutex);
    const bool refused = !progress_->refused.empty(), submit = refused || next_ < prompts_.size();
    return {submit, refused, !submit && progress_->open == 0 && progress_->failed.ok(), progress_->open};
  }

  // Until fewer than `most` are open, or one has failed; for a moment only.
  Result<bool> fewer_than(int64_t most) {
    std::unique_lock lock(progress_->mutex);
    const auto fewer = [&] { return !progress_->failed.ok() || progress_->open < most; };
    const bool yes = progress_->changed.wait_for(lock, kLook, fewer);
    if (!progress_->failed.ok()) return progress_->failed.error();
    return yes;
  }

  // Work that waits for these prompts is no less urgent in the engine than what it waits for.
  void raise() {
    const int64_t most = terms_.worker.most_urgent();
    if (most <= priority_) return;
    priority_ = most;
    for (RequestId id : ids_)
      if (id != 0) engine_.raise(id, priority_);
  }

  void end() { done_ = true; }

 private:
  size_t take() {
    std::lock_guard lock(progress_->mutex);
    if (progress_->refused.empty()) return next_++;
    const size_t prompt = progress_->refused.back();
    progress_->refused.pop_back();
    return prompt;
  }

  Engine& engine_;
  const std::vector<PromptRead>& prompts_;
  const ReadTerms& terms_;
  int64_t priority_;
  size_t next_ = 0;             // prompt that was not submitted yet
  std::vector<RequestId> ids_;  // by prompt; 0: none
  std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
  bool done_ = false;
};

}  // namespace

Result<void> read_prompts(Engine& engine, const std::vector<PromptRead>& prompts, const ReadTerms& terms) {
  Reading reading(engine, prompts, terms);
  const int64_t at_once = std::clamp<int64_t>(engine.most_requests() / kPlaces, 1, kAtOnce);
  for (auto left = reading.left(); !left.done; left = reading.left()) {
    if (terms.unwanted) return Error::cancelled("the client has left");
    if (terms.stopping) return Error::cancelled("the server is shutting down");
    if (terms.share.late()) return Error::cancelled(kLate);
    reading.raise();
    if (left.refused) MILLRACE_TRY_VOID(reading.fewer_than(left.open));  // or looks again in a moment
    MILLRACE_TRY(const bool room, reading.fewer_than(left.submit ? at_once : 1));
    if (room && left.submit) MILLRACE_TRY_VOID(reading.submit());
  }
  reading.end();
  return {};
}

Result<std::shared_ptr<QueuePlace>> take_place(const GenerationRequest& params) {
  const int64_t context = params.served->context, answer = params.request.max_tokens;
  int64_t longest = 0;
  for (const AskedPrompt& prompt : params.prompts) {
    const int64_t count = std::min<int64_t>(context, std::ssize(prompt.tokens));
    longest = std::max(longest, answer < 0 ? context : count + std::min(answer, context - count));
  }
  return params.served->engine->take_place(longest);
}

ApiError reading_error(const Error& error, const WorkShare& share) {
  if (error.kind != ErrorKind::cancelled) return ApiError::from(error);
  if (share.late()) return {ApiErrorKind::time_limit, kLate, "timeout"};
  return {ApiErrorKind::draining, error.message, ""};
}

}  // namespace millrace
