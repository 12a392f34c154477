// NpuModel: the NPU of a phone as a cost model in virtual time, and the prompts that run on it (Xu et al., 2024, "Fast
// On-device LLM Inference with NPUs"). The defaults are a Snapdragon 8 gen 3 as the paper measures it: an int8 product
// of [64, 2048] and [2048, 2048] takes 0.9 ms, where its CPU takes 4.2 ms; building and optimizing the graphs of a
// model of two billion weights takes about 12 s; products with a scale for each group of weights take about nine times
// as long.
#pragma once

#include <string>
#include <vector>

#include "models/npu/device.h"
#include "models/npu/schedule.h"

namespace millrace {

struct NpuMachine {
  double npu_products = 2.4e12;            // int8 multiply-adds in a second, of many rows
  double npu_half_rows = 320;              // rows at which half of them are reached
  double npu_start_seconds = 0.25e-3;      // overhead of a subgraph
  double prepare_weight_seconds = 5.9e-9;  // building and optimizing graphs, for each weight
  double group_factor = 9;                 // time of a product with group scales, as a multiple
  double cpu_int8_products = 6.4e10;   // int8 multiply-adds of the processor in a second, for products without an NPU
  double float_products = 1.2e11;      // float multiply-adds of the processor in a second
  double float_bytes = 1.5e10;         // bytes of rows that it reads and writes in a second
  double shadow_start_seconds = 1e-3;  // overhead of waiting and merging, for each input with outliers
};

class NpuModel final : public NpuDevice {
 public:
  explicit NpuModel(NpuMachine machine = {}) : machine_(machine) {}

  std::string_view name() const override { return "npu_model"; }
  double prepare_seconds(const NpuShape& shape) const override;
  double run_seconds(const NpuShape& shape) const override;
  const NpuMachine& machine() const { return machine_; }

 private:
  NpuMachine machine_;
};

// Sizes of a transformer whose layers are alike.
struct NpuTransformer {
  std::string name;
  int64_t layers = 0, width = 0, q_width = 0, kv_width = 0, hidden = 0;
  bool gated = true;

  int64_t weights() const;  // number of weights in all layers
};

// How a prompt runs; each technique of the paper adds to the one before it.
struct NpuPlan {
  int64_t prompt = 1024;      // tokens
  int64_t chunk = 256;        // rows of a graph; 0: one graph of the whole prompt, prepared for it
  bool group_scales = false;  // the NPU multiplies with group scales; false: one scale, and shadow outliers
  double pruned = 0.85;       // fraction of the inputs without shadow outliers
  double channels = 0.003;    // outlier channels of an input, as a fraction
  NpuOrder order = NpuOrder::out_of_order;
};

// The subgraphs of the prompt, chunk after chunk, layer after layer.
std::vector<NpuSubgraph> npu_subgraphs(const NpuTransformer& model, const NpuPlan& plan, const NpuModel& npu);

struct NpuPrefill {
  std::string name;            // "+ out of order"
  double prepare_seconds = 0;  // within the prompt's time
  NpuTimeline timeline;

  double seconds() const { return prepare_seconds + timeline.seconds; }
};

NpuPrefill plan_npu_prefill(const NpuTransformer& model, const NpuPlan& plan, const NpuModel& npu);

// The paper's ablation: the processor alone, the NPU alone (a graph for each prompt, group scales), with shared chunk
// graphs, with shadow outliers, and out of order.
std::vector<NpuPrefill> npu_ablation(const NpuTransformer& model, int64_t prompt, int64_t chunk, const NpuModel& npu);

// Models of the paper: "qwen1.5-1.8b", "gemma-2b"; null: unknown.
const NpuTransformer* find_npu_transformer(std::string_view name);
std::span<const NpuTransformer> npu_transformers();

}  // namespace millrace
