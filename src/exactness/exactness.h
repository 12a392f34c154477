// The check of exactness: the same requests to one server alone, with and without a cached prefix, streamed, in
// batches, after other load and after a restart. Every answer is compared bit for bit with the first one.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "exactness/answer_difference.h"
#include "exactness/completion_server.h"
#include "exactness/probes.h"

namespace millrace {

struct ExactnessOptions {
  ProbeSizes sizes;
  int64_t batch = 8;   // requests in flight at once
  int64_t rounds = 1;  // repetitions of the batches, each with other neighbours
  // Restarts the server and waits until it is ready; null: no restart.
  std::function<Result<void>()> restart;
  // Called before each request or batch with the done fraction and the way of sending. Returns false to stop.
  std::function<bool(double, const std::string&)> progress;
};

// The smallest example of a difference.
struct DifferenceExample {
  size_t probe = 0;
  AnswerDifference difference;
  CompletionCall reference_call, call;
  CompletionAnswer expected, got;
  std::vector<CompletionCall> companions;  // calls that must be in flight at the same time
  // false: the whole batch was sent again and the difference did not show. The companions are the whole batch then, and
  // also if the search was stopped.
  bool repeats = true;
};

// The answers to one probe, sent in one way.
struct WayCell {
  int64_t same = 0, failed = 0;
  std::vector<AnswerDifference> differences;
};

struct WayResult {
  std::string name;
  std::string meaning;         // one line that explains the name
  std::vector<WayCell> cells;  // one per probe
  std::optional<DifferenceExample> example;
  std::string failure;         // the first error of a request
  int64_t cached_tokens = -1;  // the largest number that an answer reports; -1: the server does not say
};

struct ExactnessResult {
  std::vector<Probe> probes;
  std::vector<CompletionAnswer> reference;  // the answers to the probes, sent alone for the first time
  std::vector<WayResult> ways;
  std::vector<std::string> notes;
  bool complete = true;        // false: stopped by progress() or by `error`
  std::optional<Error> error;  // the error that ended the check after the reference; `notes` has its message

  int64_t same() const, different() const, failed() const;
};

// Errors: those of the server for the first answers, cancelled (stopped by progress() before these were complete).
// Later errors are in ExactnessResult::error: 8 requests in a row failed (kind of the last one), or `restart` failed.
Result<ExactnessResult> check_exactness(CompletionServer& server, const ExactnessOptions& options);

}  // namespace millrace
