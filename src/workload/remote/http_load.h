// Sends a load to a server over HTTP and records when each token of the streamed answers arrives. Single-threaded, one
// connection per request.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "workload/metrics.h"
#include "workload/remote/completion_api.h"
#include "workload/remote/url.h"

namespace millrace {

struct HttpLoadOptions {
  CompletionStyle style;
  std::string api_key;      // "": no Authorization
  int64_t closed_loop = 0;  // constant number of requests in flight; 0: each request is sent at its arrival time
  double patience = 0;      // maximum seconds of a request, which is then abandoned; 0: no limit
  double silence = 600;     // maximum seconds without receiving a byte; the request is then abandoned
};

// Sends the load and returns one record per request, in the load's order. For a failed request, RequestRecord::error is
// for example "connect: ...", "HTTP 503: ...", "took longer than 5 s" or "the stream ended early". `progress(done, in
// flight)` is called ten times a second and may return false to stop. Errors: user (the host has no address).
Result<std::vector<RequestRecord>> run_http_load(const Url& url, std::span<const WorkloadRequest> load,
                                                 const HttpLoadOptions& options,
                                                 const std::function<bool(int64_t, int64_t)>& progress);

}  // namespace millrace
