// AnswerMemory: the part of a memory budget for data that grows with answers, from a request's admission to the last
// byte of its reply. The engine's estimate (request_memory()) ends with the last event; a reply is written later.
//
//   values      log-probabilities and texts of answers in progress, or not yet sent: AnswerMemory
//   unsent      events that wait for slow readers: HttpLimits::all_queued_bytes
//   resumable   transcripts of streams that clients can resume: StreamLimits
//
// A Generation takes its hold before it submits anything, for its answers at their full length, and keeps it until its
// reply has been sent. A request without room is refused, and none fails later. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "base/memory_accounts.h"
#include "server/api/api_error.h"
#include "server/generation/stream_store.h"

namespace millrace {

struct AnswerFormat;
struct GenerationRequest;

// In bytes. All are 0 without a budget: no limits.
struct AnswerParts {
  int64_t values = 0, unsent = 0, resumable = 0;
  int64_t total() const { return values + unsent + resumable; }
};
// Parts of a memory budget for each kind of data about answers; with `divisor` > 1, of that fraction of the budget.
AnswerParts answer_parts(int64_t budget, int64_t divisor = 1);
// `limits` with at most the part of the budget, and room for at least 8 streams at the same time.
StreamLimits within(StreamLimits limits, const AnswerParts& parts);

class AnswerMemory {
 public:
  explicit AnswerMemory(const AnswerParts& parts = {}) : parts_(parts) {}
  // With the parts of the accounts' budget taken from it; null accounts, or ones without a budget: no limits. Errors:
  // resource.
  static Result<std::shared_ptr<AnswerMemory>> of_budget(const std::shared_ptr<MemoryAccounts>& accounts,
                                                         int64_t divisor = 1);

  const AnswerParts& parts() const { return parts_; }
  int64_t held() const;  // bytes held of parts().values

  // Holds `bytes` until the result is destroyed. The error is too_large if they never fit, otherwise overloaded.
  class Hold;
  static std::optional<ApiError> take(const std::shared_ptr<AnswerMemory>& memory, int64_t bytes,
                                      std::unique_ptr<Hold>& hold);

 private:
  const AnswerParts parts_;
  MemoryHold account_;
  mutable std::mutex mutex_;
  int64_t held_ = 0;
};

class AnswerMemory::Hold {
 public:
  explicit Hold(std::shared_ptr<AnswerMemory> memory) : memory_(std::move(memory)) {}
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  friend class AnswerMemory;
  const std::shared_ptr<AnswerMemory> memory_;
  int64_t bytes_ = 0;
};

// Maximum memory of a request: its prompts' and answers' log-probabilities, the answers' texts, and the parts of a
// reply being written. `context`: the model's, which bounds each prompt with its answer. `taken`: true: the reply is
// passed to an AnswerTaker, which receives it complete and parses it.
int64_t answer_bytes(const GenerationRequest& params, const AnswerFormat& format, int64_t context, bool taken = false);

}  // namespace millrace
