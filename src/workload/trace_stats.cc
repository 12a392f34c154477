#include "workload/trace_stats.h"

#include <set>
#include <unordered_map>

#include "workload/prefix_blocks.h"

namespace millrace {
namespace {

constexpr double kWindowSeconds = 10;

double variance(const std::vector<double>& values, double mean) {
  double sum = 0;
  for (double value : values) sum += (value - mean) * (value - mean);
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

ArrivalStats arrival_stats(std::span<const WorkloadRequest> requests) {
  ArrivalStats out;
  std::vector<double> gaps;
  for (size_t i = 1; i < requests.size(); ++i)
    gaps.push_back(requests[i].arrival_seconds - requests[i - 1].arrival_seconds);
  out.gap_seconds = summarize(gaps);
  out.seconds = requests.empty() ? 0 : requests.back().arrival_seconds - requests.front().arrival_seconds;
  if (out.seconds <= 0) return out;
  out.rate = static_cast<double>(gaps.size()) / out.seconds;
  out.gap_cv = std::sqrt(variance(gaps, out.gap_seconds.mean)) / out.gap_seconds.mean;
  // Only whole windows: a partial one would look like a lull.
  std::vector<double> windows(static_cast<size_t>(std::min(out.seconds / kWindowSeconds, 1e7)));
  for (const auto& request : requests) {
    const double at = (request.arrival_seconds - requests.front().arrival_seconds) / kWindowSeconds;
    if (at < static_cast<double>(windows.size())) ++windows[static_cast<size_t>(at)];
  }
  const Summary counts = summarize(windows);
  if (counts.mean > 0) out.dispersion = variance(windows, counts.mean) / counts.mean;
  out.peak_rate = counts.max / kWindowSeconds;
  return out;
}

struct BlockUse {
  double seconds = 0;
  int64_t request = 0;
  int64_t uses = 0;
};

ReuseStats reuse_stats(std::span<const WorkloadRequest> requests, int64_t token_block) {
  ReuseStats out;
  std::unordered_map<uint64_t, BlockUse> seen;
  std::vector<double> gap_seconds, gap_requests;
  for (size_t r = 0; r < requests.size(); ++r) {
    const WorkloadRequest& request = requests[r];
    const auto blocks = prompt_blocks(request, token_block);
    out.tokens += request.prompt_tokens;
    if (!blocks.empty()) out.block_tokens = std::max(out.block_tokens, prompt_block_tokens(request, token_block));
    int64_t hits = 0, tokens = 0;
    for (const PromptBlock& block : blocks) {
      const auto found = seen.find(block.name);
      if (found == seen.end() || found->second.request == static_cast<int64_t>(r)) break;
      ++hits;
      tokens += block.tokens;
      gap_seconds.push_back(request.arrival_seconds - found->second.seconds);
      gap_requests.push_back(static_cast<double>(static_cast<int64_t>(r) - found->second.request));
      out.reused_blocks += found->second.uses == 1;
    }
    for (const PromptBlock& block : blocks) {
      BlockUse& use = seen[block.name];
      use = {request.arrival_seconds, static_cast<int64_t>(r), use.uses + 1};
      out.most_uses = std::max(out.most_uses, use.uses);
    }
    out.blocks += static_cast<int64_t>(blocks.size());
    out.hit_blocks += hits;
    out.hit_tokens += tokens;
    const bool known = !blocks.empty();
    const int64_t block = known ? prompt_block_tokens(request, token_block) : 1, rest = request.prompt_tokens - tokens;
    out.hit_tokens_expected += tokens + std::min(block / 2, rest);
    out.hit_tokens_at_most += tokens + std::min(block - 1, rest);
    out.requests_with_hit += hits > 0;
    if (known) out.mean_request_blocks += static_cast<double>(hits) / static_cast<double>(blocks.size());
    out.mean_request_tokens += static_cast<double>(tokens) / static_cast<double>(request.prompt_tokens);
  }
  out.distinct_blocks = static_cast<int64_t>(seen.size());
  if (!requests.empty()) {
    out.mean_request_blocks /= static_cast<double>(requests.size());
    out.mean_request_tokens /= static_cast<double>(requests.size());
  }
  out.gap_seconds = summarize(std::move(gap_seconds));
  out.gap_requests = summarize(std::move(gap_requests));
  return out;
}

}  // namespace

TraceStats trace_stats(std::span<const WorkloadRequest> requests, int64_t token_block) {
  TraceStats out;
  std::vector<double> prompts, outputs;
  std::set<std::string_view> sessions, tenants;
  for (const WorkloadRequest& request : requests) {
    prompts.push_back(static_cast<double>(request.prompt_tokens));
    outputs.push_back(static_cast<double>(request.output_tokens));
    out.total_prompt += request.prompt_tokens;
    out.total_output += request.output_tokens;
    out.without_output += request.output_tokens == 0;
    if (!request.session.empty()) sessions.insert(request.session);
    if (!request.tenant.empty()) tenants.insert(request.tenant);
  }
  out.requests = static_cast<int64_t>(requests.size());
  out.sessions = static_cast<int64_t>(sessions.size());
  out.tenants = static_cast<int64_t>(tenants.size());
  out.prompt_tokens = summarize(std::move(prompts));
  out.output_tokens = summarize(std::move(outputs));
  out.arrivals = arrival_stats(requests);
  out.reuse = reuse_stats(requests, token_block);
  return out;
}

}  // namespace millrace
