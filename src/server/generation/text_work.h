// TextWork: the limits of reading one request's texts: rendering its chat template and tokenizing. Shared by the worker
// that reads and the connection, which sets `cancelled` when the client leaves. Charges the memory of tokenizing to the
// model's account "prompts", which is reserved when the model is loaded (docs/memory.md).
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "base/memory_accounts.h"
#include "base/work_limits.h"
#include "server/api/api_error.h"

namespace millrace {

// Bytes that tokenizing needs for each byte of text: its normalized form, its pieces, and one token a byte at most.
constexpr int64_t kTokenizingBytesPerByte = 64;

// The memory for tokenizing of one model.
struct TextMemory {
  MemoryHold hold;                           // from the model's accounts
  std::shared_ptr<MemoryAccounts> accounts;  // the part of `hold` that is in use; null: unlimited

  // Reserves a part of what a model's own budget has left; the engine takes the remainder. If models share the budget,
  // reserves what a text of `context` tokens needs, so that a model's size does not depend on the others. Without a
  // budget nothing is limited. Errors: resource.
  static Result<TextMemory> reserve(const std::shared_ptr<MemoryAccounts>& model, int64_t context);
};

struct TextWork {
  using Time = std::chrono::steady_clock::time_point;

  const Time since = std::chrono::steady_clock::now();  // the request waits to be read
  std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
  Time until = Time::max();          // limit of the server
  Time request_until = Time::max();  // limit of the request

  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count(); }
  WorkLimits limits() const { return {.cancelled = cancelled.get(), .until = std::min(until, request_until)}; }
  // Charges `bytes` of text until this is destroyed. If a larger charge was made before, adds nothing, otherwise the
  // difference: texts are read one after the other. Errors: too_large (it never fits), overloaded.
  std::optional<ApiError> charge(const TextMemory& memory, int64_t bytes);
  // The error of a request whose reading ended with `error`, which may be due to these limits.
  ApiError explain(const ApiError& error) const;

 private:
  int64_t charged_ = 0;
  std::vector<MemoryHold> holds_;
};

}  // namespace millrace
