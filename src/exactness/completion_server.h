// CompletionServer: the server under test, as the check of exactness sees it.
#pragma once

#include <span>
#include <vector>

#include "exactness/completion_answer.h"
#include "exactness/completion_call.h"

namespace millrace {

class CompletionServer {
 public:
  virtual ~CompletionServer() = default;
  // Sends all calls at the same time, each after its delay, and waits for the answers. Returns one per call, in order.
  // Errors of an answer: network, those of status_error() and of read_whole_answer().
  virtual std::vector<Result<CompletionAnswer>> answer(std::span<const CompletionCall> calls) = 0;
  // Returns true if the server accepts the fields that ask it not to use its prefix cache.
  virtual bool can_skip_cache() const = 0;
};

}  // namespace millrace
