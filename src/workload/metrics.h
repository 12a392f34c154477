// The metrics of a replay, as defined by `vllm bench serve`.
//
//   arrival .. sent .. first token ... last token
//   |- TTFT -----------|                             from the planned arrival, so delays of the load generator count
//   |- E2E ------------------------------------|
//                      |- (E2E - TTFT) / (n-1) = TPOT of the request; each gap between tokens is an ITL
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "workload/summary.h"

namespace millrace {

// The outcome of one request. Times are seconds since the start of the run.
struct RequestRecord {
  double arrival = 0;  // planned sending time
  double sent = 0;
  std::vector<double> tokens;  // arrival time of each token
  double finished = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // prompt tokens found in a prefix cache
  int64_t output_tokens = 0;  // as counted by the server, if an event may carry several tokens; 0: one token per event
  std::string error;          // empty: success
  std::string tenant;

  bool ok() const { return error.empty() && !tokens.empty(); }
  double ttft() const { return tokens.front() - arrival; }
  double e2e() const { return tokens.back() - arrival; }
  int64_t count() const { return output_tokens > 0 ? output_tokens : static_cast<int64_t>(tokens.size()); }
  double tpot() const { return count() > 1 ? (tokens.back() - tokens.front()) / static_cast<double>(count() - 1) : 0; }
};

// Limits of a good request. A request is good if it meets all limits; 0: no limit.
struct GoodputLimits {
  double ttft = 0, tpot = 0, e2e = 0;  // seconds

  bool any() const { return ttft > 0 || tpot > 0 || e2e > 0; }
  bool kept_by(const RequestRecord& record) const;
};

struct LoadMetrics {
  int64_t requests = 0, completed = 0, failed = 0;
  double seconds = 0;                                               // from the first arrival to the last token
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;  // tokens of completed requests
  double request_rate = 0;                                          // completed requests per second
  double output_rate = 0;                                           // tokens per second
  double total_rate = 0;                                            // tokens per second, including prompt tokens
  Summary ttft, tpot, itl, e2e;  // seconds; TPOT over requests with two tokens or more
  Summary lag;                   // sent - arrival: delay of the generator
  int64_t good = 0;              // requests within the limits, if any are set
  double goodput = 0;            // good requests per second
  std::map<std::string, int64_t> errors;
};

// One measured figure next to its prediction.
struct ComparedFigure {
  const char* name;  // "TTFT p99, ms"
  const char* key;   // "ttft_p99"
  double measured = 0, predicted = 0;

  double ratio() const { return measured > 0 ? predicted / measured : 0; }
};
std::vector<ComparedFigure> compare_loads(const LoadMetrics& measured, const LoadMetrics& predicted);

LoadMetrics measure_load(std::span<const RequestRecord> records, const GoodputLimits& limits = {});

}  // namespace millrace
