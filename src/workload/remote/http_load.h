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
  int64_t closed_loop = 0;  // 0: each request at its arrival; otherwise the number of requests in flight
  double patience = 0;      // a request that takes longer is abandoned; seconds, 0: no limit
  double silence = 600;     // ... as is one that receives nothing for this long
};

// One record per request, in the load's order; a failure is in its error, by kind: "connect: ...", "HTTP 503: ...",
// "took longer than 5 s", "the stream ended early" ... `progress(done, in flight)` is called ten times a second and may
// return false to stop. Errors: user (the host has no address).
Result<std::vector<RequestRecord>> run_http_load(const Url& url, std::span<const WorkloadRequest> load,
                                                 const HttpLoadOptions& options,
                                                 const std::function<bool(int64_t, int64_t)>& progress);

}  // namespace millrace
