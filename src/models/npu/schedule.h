// Schedules of subgraphs on two processors: an NPU, which runs integer products, and the float processor next to it (Xu
// et al., 2024, "Fast On-device LLM Inference with NPUs", section 3.4). Each runs one subgraph at a time. SubgraphQueue
// decides; schedule_subgraphs() follows it in virtual time, and NpuGroups (groups.h) on threads. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace millrace {

struct NpuSubgraph {
  std::string name;  // "chunk 1, layer 3: attention"
  bool on_npu = false;
  double seconds = 0;
  std::vector<int32_t> after;  // subgraphs that must have ended, with smaller numbers
};

enum class NpuOrder : uint8_t {
  in_order,      // each processor runs its subgraphs in the order of the list
  out_of_order,  // each processor runs the ready subgraph with the largest C
};

// Subgraphs that have not started, and what each one waits for.
//
// C is how much a subgraph reduces the NPU's stalls: for a float subgraph, the seconds of the NPU's subgraphs that its
// end makes ready; for a subgraph of the NPU, minus its own seconds. The first of equal ones is taken.
class SubgraphQueue {
 public:
  // `subgraphs` must outlive the queue.
  SubgraphQueue(std::span<const NpuSubgraph> subgraphs, NpuOrder order);

  // Takes the next subgraph of the NPU, or of the float processor, for running. Returns -1 if none is ready.
  int32_t take(bool on_npu);
  // A subgraph that was taken has ended.
  void finish(int32_t subgraph);
  bool empty() const { return queues_[0].empty() && queues_[1].empty(); }  // all are taken
  bool empty(bool on_npu) const { return queues_[on_npu].empty(); }

 private:
  double reduced_stall(int32_t subgraph) const;

  std::span<const NpuSubgraph> subgraphs_;
  NpuOrder order_;
  std::vector<int64_t> waits_for_;  // by subgraph: predecessors that have not ended
  std::vector<std::vector<int32_t>> followers_;
  std::array<std::vector<int32_t>, 2> queues_;  // for the float processor and the NPU, in the order of the list
};

struct NpuTimeline {
  double seconds = 0;         // until the last subgraph ends
  double npu_seconds = 0;     // in which the NPU runs
  double float_seconds = 0;   // in which the float processor runs
  std::vector<double> start;  // by subgraph

  double npu_idle() const { return seconds > 0 ? 1 - npu_seconds / seconds : 0; }  // fraction
};

NpuTimeline schedule_subgraphs(std::span<const NpuSubgraph> subgraphs, NpuOrder order);

}  // namespace millrace
