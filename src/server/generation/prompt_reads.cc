#include "server/generation/prompt_reads.h"

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace millrace {
namespace {

constexpr int64_t kAtOnce = 8;  // requests in the engine: enough to fill its steps, few enough to leave places
constexpr auto kLook = std::chrono::milliseconds(20);

// What the engine's thread reports.
struct Progress {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t open = 0;
  Result<void> failed;

  void end(const TokenEvent& event) {
    std::lock_guard lock(mutex);
    --open;
    if (failed.ok() && event.finish == FinishReason::error) failed = event.error;
    if (failed.ok() && event.finish == FinishReason::cancelled) failed = Error::cancelled("the engine has stopped");
    changed.notify_one();
  }
};

class Reading {
 public:
  Reading(Engine& engine, const WorkShare& share) : engine_(engine), share_(share) {}

  // False: the queue is full. Errors: of the request.
  Result<bool> submit(PromptRead& prompt) {
    Request request;
    request.prompt = prompt.tokens;
    request.reader = prompt.reader;
    request.max_tokens = 0;
    request.evictor = "none";
    request.document_context = "none";
    request.tenant = share_.engine_tenant;
    MILLRACE_TRY_VOID(engine_.check(request));
    {
      std::lock_guard lock(progress_->mutex);
      ++progress_->open;
    }
    auto id = engine_.submit(std::move(request), [progress = progress_](TokenEvent&& event) {
      if (event.last) progress->end(event);
    });
    if (id.ok()) {
      ids_.push_back(*id);
      return true;
    }
    std::lock_guard lock(progress_->mutex);
    --progress_->open;
    if (id.error().kind != ErrorKind::resource || engine_.liveness().stopped) return id.error();
    return false;
  }

  // Until fewer than `most` are open, or one has failed; for a moment only.
  Result<bool> fewer_than(int64_t most) {
    std::unique_lock lock(progress_->mutex);
    const auto fewer = [&] { return !progress_->failed.ok() || progress_->open < most; };
    const bool yes = progress_->changed.wait_for(lock, kLook, fewer);
    if (!progress_->failed.ok()) return progress_->failed.error();
    return yes;
  }

  void cancel() {
    for (RequestId id : ids_) engine_.cancel(id);
  }

 private:
  Engine& engine_;
  const WorkShare& share_;
  std::vector<RequestId> ids_;
  std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
};

}  // namespace

Result<void> read_prompts(Engine& engine, std::vector<PromptRead> prompts, const WorkShare& share,
                          const std::atomic<bool>& unwanted, const std::atomic<bool>& stopping) {
  Reading reading(engine, share);
  const auto run = [&]() -> Result<void> {
    const auto given_up = [&]() -> Result<void> {
      if (unwanted) return Error::cancelled("the client has left");
      if (stopping) return Error::cancelled("the server is shutting down");
      return {};
    };
    for (PromptRead& prompt : prompts) {
      for (bool in = false; !in;) {
        MILLRACE_TRY_VOID(given_up());
        MILLRACE_TRY(const bool room, reading.fewer_than(kAtOnce));
        if (!room) continue;
        MILLRACE_TRY(in, reading.submit(prompt));
        if (!in) MILLRACE_TRY_VOID(reading.fewer_than(0));  // looks again in a moment
      }
    }
    for (bool done = false; !done;) {
      MILLRACE_TRY_VOID(given_up());
      MILLRACE_TRY(done, reading.fewer_than(1));
    }
    return {};
  };
  auto done = run();
  if (!done.ok()) reading.cancel();
  return done;
}

}  // namespace millrace
