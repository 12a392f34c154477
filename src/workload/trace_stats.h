// Statistics of a load: lengths, arrivals, and the prompt tokens that a prefix cache could save.
#pragma once

#include <span>

#include "workload/request.h"
#include "workload/summary.h"

namespace millrace {

struct ArrivalStats {
  double seconds = 0;     // from the first arrival to the last
  double rate = 0;        // (n - 1) / seconds; 0 when all arrive at once
  double gap_cv = 0;      // standard deviation / mean of the gaps: 1 for Poisson, 0 for regular arrivals
  double dispersion = 0;  // variance / mean of the number of arrivals in 10 s windows: 1 for Poisson
  double peak_rate = 0;   // requests per second in the busiest 10 s window
  Summary gap_seconds;
};

// Reuse with an unlimited cache that stores every request on arrival. A block is a hit if an earlier request has the
// same prompt up to the block's end. Blocks of one request do not hit each other.
struct ReuseStats {
  int64_t block_tokens = 0;  // 0: the load has no prefix information
  int64_t blocks = 0, distinct_blocks = 0, hit_blocks = 0;
  int64_t tokens = 0, hit_tokens = 0;  // in all prompts; a partly filled block counts its actual tokens
  // Estimates of hit_tokens if the first missing block of a request were matched token by token: half a block more per
  // request is expected, and at most block_tokens - 1 tokens more.
  int64_t hit_tokens_expected = 0, hit_tokens_at_most = 0;
  double mean_request_blocks = 0;  // hit ratio of a request in blocks, averaged over requests
  double mean_request_tokens = 0;  // hit ratio of a request in tokens, averaged over requests
  int64_t requests_with_hit = 0;
  int64_t reused_blocks = 0;  // distinct blocks that hit at least once
  int64_t most_uses = 0;      // maximum number of uses of one block
  Summary gap_seconds;        // time between two uses of a block, over all hits
  Summary gap_requests;       // number of requests between two uses of a block, over all hits
};

struct TraceStats {
  int64_t requests = 0;
  int64_t without_output = 0;
  int64_t sessions = 0, tenants = 0;  // distinct names
  Summary prompt_tokens, output_tokens;
  int64_t total_prompt = 0, total_output = 0;
  ArrivalStats arrivals;
  ReuseStats reuse;
};

// Computes the statistics of a load. `token_block`: block size for requests that have tokens instead of hashes.
TraceStats trace_stats(std::span<const WorkloadRequest> requests, int64_t token_block = 16);

}  // namespace millrace
