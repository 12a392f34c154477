// WorkloadRequest: one request of a recorded or generated load. Lengths, arrival, and what it shares with others;
// plain data that the replayer, the simulator and the statistics read.
//
//   prompt   [ block 0 | block 1 | ... | tail ]     prefix_hashes[i] names everything up to the end of block i:
//              hash 0    hash 1    ...              equal hashes at one place mean equal prompts up to there
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "millrace/token.h"

namespace millrace {

struct WorkloadRequest {
  uint64_t id = 0;                      // place in the trace; what the trace does not tell is drawn from it
  double arrival_seconds = 0;           // since the first request; ascending in what read_trace() and generators return
  int64_t prompt_tokens = 0;            // >= 1
  int64_t output_tokens = 0;            // >= 0: some recorded requests ended before their first token
  std::vector<uint64_t> prefix_hashes;  // of each block of hash_block_tokens; the last one may be partly filled,
                                        // and fewer blocks than the prompt has leave the rest private
  int64_t hash_block_tokens = 0;        // 512 for Mooncake; 0: nothing is known of shared prefixes
  std::vector<TokenId> tokens;          // the prompt itself where the trace has it; else empty
  std::string tenant, session;          // empty: unknown
};

// The prompt as token ids in [0, vocab): the trace's own (folded into the vocabulary), or made up so that equal hashes
// give equal tokens, different ones different tokens, and a block without a hash is shared with nobody. A pure function
// of the request, so that every run and machine replays the same bytes. vocab >= 1.
std::vector<TokenId> make_prompt(const WorkloadRequest& request, int64_t vocab);

struct TraceOptions {
  std::string format;              // "" recognises it from the content
  int64_t limit = 0;               // first so many requests; 0: all
  double scale = 1;                // 2: arrivals twice as dense
  double rate = 0;                 // requests a second on average, instead of the trace's own; 0: leave
  int64_t text_block_tokens = 16;  // traces with text: block size of the hashes
  double bytes_per_token = 4;      // ... and, without `encode`, the length of a token
  // Traces with text: gives real token ids. Null: lengths are the trace's or bytes / bytes_per_token, prefixes are
  // hashed by bytes.
  std::function<Result<std::vector<TokenId>>(std::string_view)> encode;
};

// Reads a trace of any format in workload/readers/, packed with xz or not, in order of arrival. Errors: user (no such
// file, unknown format), corrupt (naming file, line and field), resource (larger than the bounds below).
Result<std::vector<WorkloadRequest>> read_trace(const std::string& path, const TraceOptions& options = {});
// The same from bytes in memory; `name` stands for the file in errors.
Result<std::vector<WorkloadRequest>> read_trace_image(std::string_view bytes, const std::string& name,
                                                      const TraceOptions& options = {});

inline constexpr int64_t kMaxTraceRequests = int64_t{1} << 24;
inline constexpr int64_t kMaxTraceTokens = int64_t{1} << 24;  // of one prompt or answer
inline constexpr int64_t kMaxTraceLineBytes = int64_t{1} << 26;

}  // namespace millrace
