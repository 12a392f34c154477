#include "models/npu/schedule.h"

#include <algorithm>
#include <cassert>
#include <limits>

namespace millrace {

SubgraphQueue::SubgraphQueue(std::span<const NpuSubgraph> subgraphs, NpuOrder order)
    : subgraphs_(subgraphs), order_(order), waits_for_(subgraphs.size()), followers_(subgraphs.size()) {
  for (size_t i = 0; i < subgraphs.size(); ++i) {
    waits_for_[i] = std::ssize(subgraphs[i].after);
    queues_[subgraphs[i].on_npu].push_back(static_cast<int32_t>(i));
    for (const int32_t before : subgraphs[i].after) {
      assert(before >= 0 && static_cast<size_t>(before) < i);
      followers_[static_cast<size_t>(before)].push_back(static_cast<int32_t>(i));
    }
  }
}

double SubgraphQueue::reduced_stall(int32_t subgraph) const {
  const NpuSubgraph& own = subgraphs_[static_cast<size_t>(subgraph)];
  if (own.on_npu) return -own.seconds;
  double seconds = 0;
  for (const int32_t follower : followers_[static_cast<size_t>(subgraph)])
    if (subgraphs_[static_cast<size_t>(follower)].on_npu && waits_for_[static_cast<size_t>(follower)] == 1)
      seconds += subgraphs_[static_cast<size_t>(follower)].seconds;
  return seconds;
}

int32_t SubgraphQueue::take(bool on_npu) {
  std::vector<int32_t>& queue = queues_[on_npu];
  auto chosen = queue.end();
  double most = 0;
  for (auto one = queue.begin(); one != queue.end(); ++one) {
    const bool ready = waits_for_[static_cast<size_t>(*one)] == 0;
    if (order_ == NpuOrder::in_order) {
      if (ready) chosen = one;
      break;
    }
    if (!ready) continue;
    const double c = reduced_stall(*one);
    if (chosen != queue.end() && c <= most) continue;
    chosen = one;
    most = c;
  }
  if (chosen == queue.end()) return -1;
  const int32_t subgraph = *chosen;
  queue.erase(chosen);
  return subgraph;
}

void SubgraphQueue::finish(int32_t subgraph) {
  for (const int32_t follower : followers_[static_cast<size_t>(subgraph)]) --waits_for_[static_cast<size_t>(follower)];
}

NpuTimeline schedule_subgraphs(std::span<const NpuSubgraph> subgraphs, NpuOrder order) {
  SubgraphQueue queue(subgraphs, order);
  NpuTimeline out;
  out.start.assign(subgraphs.size(), -1);
  struct Processor {
    bool on_npu;
    int32_t running = -1;
    double end = 0;
  } processors[] = {{true}, {false}};
  for (double now = 0;;) {
    double next = std::numeric_limits<double>::infinity();
    for (Processor& one : processors) {
      if (one.running < 0) one.running = queue.take(one.on_npu);
      if (one.running < 0) continue;
      const auto subgraph = static_cast<size_t>(one.running);
      if (out.start[subgraph] < 0) {
        out.start[subgraph] = now;
        one.end = now + subgraphs[subgraph].seconds;
        (one.on_npu ? out.npu_seconds : out.float_seconds) += subgraphs[subgraph].seconds;
      }
      next = std::min(next, one.end);
    }
    if (processors[0].running < 0 && processors[1].running < 0) break;
    out.seconds = now = next;
    for (Processor& one : processors) {
      if (one.running < 0 || one.end > now) continue;
      queue.finish(one.running);
      one.running = -1;
    }
  }
  return out;
}

}  // namespace millrace
