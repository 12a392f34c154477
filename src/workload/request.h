// WorkloadRequest: one request of a recorded or generated load, with its lengths, arrival time and shared prefix. It is
// plain data for the replayer, the simulator and the statistics.
//
//   prompt   [ block 0 | block 1 | ... | tail ]     prefix_hashes[i] identifies everything up to the end of block i:
//              hash 0    hash 1    ...              equal hashes at one position mean equal prompts up to there
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "millrace/request.h"
#include "millrace/token.h"

namespace millrace {

struct WorkloadRequest {
  uint64_t id = 0;             // index in the trace; the seed for everything that the trace does not specify
  double arrival_seconds = 0;  // since the first request; ascending in the results of read_trace() and generators
  int64_t prompt_tokens = 0;   // >= 1
  int64_t output_tokens = 0;   // >= 0: some recorded requests ended before their first token
  // Hash of each block of hash_block_tokens tokens; the last block may be partly filled. Tokens after the last hashed
  // block are private to the request.
  std::vector<uint64_t> prefix_hashes;
  int64_t hash_block_tokens = 0;  // 512 for Mooncake; 0: no information about shared prefixes
  std::vector<TokenId> tokens;    // the prompt itself if the trace has it; else empty
  std::string tenant, session;    // empty: unknown
  // Hashes of the documents that the prompt begins with. Equal hashes mean equal tokens, also at different positions.
  std::vector<uint64_t> documents;
  int64_t document_tokens = 0;  // tokens of each document
};

// Returns the prompt as token ids in [0, vocab): the tokens of the trace, modulo `vocab`, or generated tokens. Equal
// hashes give equal tokens, different hashes give different tokens, and a block without a hash is unique. The prompt
// depends only on the arguments, so every run on every machine replays the same bytes. vocab >= 1.
std::vector<TokenId> make_prompt(const WorkloadRequest& request, int64_t vocab);
// Returns the token ranges of the request's documents in its prompt.
std::vector<PromptDocument> prompt_documents(const WorkloadRequest& request);

struct TraceOptions {
  std::string format;              // "": detected from the content
  int64_t limit = 0;               // number of requests to read; 0: all
  double scale = 1;                // 2: arrivals twice as dense
  double rate = 0;                 // average requests per second, replaces `scale`; 0: unchanged
  int64_t text_block_tokens = 16;  // for traces with text: block size of the hashes
  double bytes_per_token = 4;      // for traces with text, without `encode`: bytes per token
  // For traces with text: encodes text to token ids. Null: lengths are those of the trace, or else bytes /
  // bytes_per_token; prefixes are hashed by bytes.
  std::function<Result<std::vector<TokenId>>(std::string_view)> encode;
};

// Reads a trace of any format in workload/readers/, also compressed with xz, and returns its requests in arrival order.
// Errors: user (no such file, unknown format), corrupt (the message names file, line and field), resource (exceeds the
// limits below).
Result<std::vector<WorkloadRequest>> read_trace(const std::string& path, const TraceOptions& options = {});
// Reads a trace from bytes in memory; `name` replaces the file name in errors.
Result<std::vector<WorkloadRequest>> read_trace_image(std::string_view bytes, const std::string& name,
                                                      const TraceOptions& options = {});

inline constexpr int64_t kMaxTraceRequests = int64_t{1} << 24;
inline constexpr int64_t kMaxTraceTokens = int64_t{1} << 24;  // per prompt or answer
inline constexpr int64_t kMaxTraceLineBytes = int64_t{1} << 26;

}  // namespace millrace
