// A roofline: a step takes as long as its arithmetic or its memory traffic, whichever is longer, plus a fixed overhead.
//
//   {"kind": "analytic", "flop_per_token": 118e9, "flop_per_pair": 2.6e6, "flops": 2.5e15, "flop_efficiency": 0.5,
//    "weight_bytes": 141e9, "kv_bytes_per_token": 327680, "bandwidth": 16e12, "bandwidth_efficiency": 0.7,
//    "step_overhead": 0.004, "seconds_per_token": 0, "swap_bandwidth": 128e9, "disk_bandwidth": 6e9}
//
// All figures are totals over all devices; seconds_per_token is the cost of tensor parallelism's communication.
#include <algorithm>

#include "schedule/costs/fields.h"

namespace millrace {
namespace {

class AnalyticCost final : public CostModel {
 public:
  double flop_per_token = 0, flop_per_pair = 0, flop_per_second = 1;
  double weight_bytes = 0, kv_bytes_per_token = 0, bytes_per_second = 1;
  double overhead = 0, seconds_per_token = 0, swap_bandwidth = 1, disk_bandwidth = 1;

  double step_seconds(const StepShape& shape) const override {
    const double tokens = shape.whole_tokens();
    const double compute = (tokens * flop_per_token + shape.pairs * flop_per_pair) / flop_per_second;
    const double traffic =
        (weight_bytes * shape.read_layers() + static_cast<double>(shape.keys) * kv_bytes_per_token) / bytes_per_second;
    return std::max(compute, traffic) + overhead + tokens * seconds_per_token;
  }
  double swap_seconds(int64_t tokens) const override {
    return static_cast<double>(tokens) * kv_bytes_per_token / swap_bandwidth;
  }
  double load_seconds(int64_t tokens) const override {
    return static_cast<double>(tokens) * kv_bytes_per_token / disk_bandwidth;
  }
};

struct Machine {
  const char* name;
  const char* json;
};

// Arithmetic of a dense transformer after Mooncake (Qin et al., 2024), eq. 1: layers * (a n^2 width + b n width^2) for
// n tokens, a = 4 and b = 22 for LLaMA3-70B (80 layers, width 8192, 8 query heads a KV head, 2 bytes a value); pairs
// count half of n^2. Machines: 312 TFLOP/s of bf16 and 2.0 TB/s for one A100 or A800, 128 GB/s to the host.
constexpr Machine kMachines[] = {
    {"llama3-70b-8xa800",
     R"({"kind": "analytic", "flop_per_token": 118.1e9, "flop_per_pair": 5.243e6, "flops": 2.496e15, "flop_efficiency": 0.55,
         "weight_bytes": 141.2e9, "kv_bytes_per_token": 327680, "bandwidth": 16.0e12, "bandwidth_efficiency": 0.7,
         "step_overhead": 0.006, "seconds_per_token": 6e-6, "swap_bandwidth": 128e9})"},
    // 32 layers, width 4096, one KV head per query head; Vicuna and LLaMA-2 7B.
    {"llama-7b-a100",
     R"({"kind": "analytic", "flop_per_token": 13.2e9, "flop_per_pair": 0.524e6, "flops": 0.312e15, "flop_efficiency": 0.55,
         "weight_bytes": 13.5e9, "kv_bytes_per_token": 524288, "bandwidth": 2.0e12, "bandwidth_efficiency": 0.7,
         "step_overhead": 0.002, "seconds_per_token": 0, "swap_bandwidth": 25e9})"},
    // 40 layers, width 5120, one KV head per query head: the size of vLLM's and FastServe's OPT-13B.
    {"opt-13b-a100",
     R"({"kind": "analytic", "flop_per_token": 25.7e9, "flop_per_pair": 0.819e6, "flops": 0.312e15, "flop_efficiency": 0.55,
         "weight_bytes": 26e9, "kv_bytes_per_token": 819200, "bandwidth": 1.56e12, "bandwidth_efficiency": 0.7,
         "step_overhead": 0.002, "seconds_per_token": 0, "swap_bandwidth": 25e9})"},
    // After FastDecode's machines (He and Zhai, 2024): one A10 (125 TFLOP/s of f16, 600 GB/s, 24 GB), alone and with
    // nodes of two Epyc (8 channels of DDR4-3200, 205 GB/s each) on 100 Gb/s. Rows: queries, keys and values of f32.
    {"llama-7b-a10",
     R"({"kind": "analytic", "flop_per_token": 13.2e9, "flop_per_pair": 0.524e6, "flops": 125e12, "flop_efficiency": 0.55,
         "weight_bytes": 13.5e9, "kv_bytes_per_token": 524288, "bandwidth": 600e9, "bandwidth_efficiency": 0.7,
         "step_overhead": 0.002, "seconds_per_token": 0, "swap_bandwidth": 25e9})"},
    {"llama-7b-a10-2epyc",
     R"({"kind": "workers", "flop_per_token": 13.2e9, "flops": 125e12, "flop_efficiency": 0.55, "weight_bytes": 13.5e9,
         "bandwidth": 600e9, "bandwidth_efficiency": 0.7, "step_overhead": 0.002, "workers": 2,
         "kv_bytes_per_token": 524288, "worker_bandwidth": 410e9, "worker_efficiency": 0.6,
         "row_bytes_per_token": 1572864, "link_bandwidth": 12.5e9, "link_seconds": 0.00064, "batches": 2})"},
    {"llama-7b-a10-4epyc",
     R"({"kind": "workers", "flop_per_token": 13.2e9, "flops": 125e12, "flop_efficiency": 0.55, "weight_bytes": 13.5e9,
         "bandwidth": 600e9, "bandwidth_efficiency": 0.7, "step_overhead": 0.002, "workers": 4,
         "kv_bytes_per_token": 524288, "worker_bandwidth": 410e9, "worker_efficiency": 0.6,
         "row_bytes_per_token": 1572864, "link_bandwidth": 12.5e9, "link_seconds": 0.00064, "batches": 2})"},
    // An A100 with 40 GB in place of the A10, because 13 billion f16 weights need more than 24 GB.
    {"opt-13b-a100-4epyc",
     R"({"kind": "workers", "flop_per_token": 25.7e9, "flops": 0.312e15, "flop_efficiency": 0.55, "weight_bytes": 26e9,
         "bandwidth": 1.56e12, "bandwidth_efficiency": 0.7, "step_overhead": 0.002, "workers": 4,
         "kv_bytes_per_token": 819200, "worker_bandwidth": 410e9, "worker_efficiency": 0.6,
         "row_bytes_per_token": 2457600, "link_bandwidth": 12.5e9, "link_seconds": 0.0008, "batches": 2})"},
    // 32 layers, width 4096, 8 KV heads: Mistral-7B, one of Sarathi-Serve's models.
    {"mistral-7b-a100",
     R"({"kind": "analytic", "flop_per_token": 14.5e9, "flop_per_pair": 0.524e6, "flops": 0.312e15, "flop_efficiency": 0.55,
         "weight_bytes": 14.5e9, "kv_bytes_per_token": 131072, "bandwidth": 2.0e12, "bandwidth_efficiency": 0.7,
         "step_overhead": 0.002, "seconds_per_token": 0, "swap_bandwidth": 25e9})"},
};

}  // namespace

Result<std::unique_ptr<CostModel>> make_analytic_cost(const CostFields& fields) {
  auto cost = std::make_unique<AnalyticCost>();
  MILLRACE_TRY(cost->flop_per_token, fields.number("flop_per_token", 0, 1e18));
  MILLRACE_TRY(cost->flop_per_pair, fields.number("flop_per_pair", 0, 1e15));
  MILLRACE_TRY(double flops, fields.number("flops", 1e6, 1e21));
  MILLRACE_TRY(double flop_efficiency, fields.number("flop_efficiency", 1e-3, 1, 1));
  MILLRACE_TRY(cost->weight_bytes, fields.number("weight_bytes", 0, 1e15));
  MILLRACE_TRY(cost->kv_bytes_per_token, fields.number("kv_bytes_per_token", 0, 1e9));
  MILLRACE_TRY(double bandwidth, fields.number("bandwidth", 1e6, 1e16));
  MILLRACE_TRY(double bandwidth_efficiency, fields.number("bandwidth_efficiency", 1e-3, 1, 1));
  MILLRACE_TRY(cost->overhead, fields.number("step_overhead", 1e-9, 10));
  MILLRACE_TRY(cost->seconds_per_token, fields.number("seconds_per_token", 0, 10, 0));
  MILLRACE_TRY(cost->swap_bandwidth, fields.number("swap_bandwidth", 1e6, 1e16, 16e9));
  MILLRACE_TRY(cost->disk_bandwidth, fields.number("disk_bandwidth", 1e5, 1e16, 3e9));
  cost->flop_per_second = flops * flop_efficiency;
  cost->bytes_per_second = bandwidth * bandwidth_efficiency;
  return std::unique_ptr<CostModel>(std::move(cost));
}

const char* builtin_cost(const std::string& name) {
  for (const Machine& machine : kMachines)
    if (name == machine.name) return machine.json;
  return nullptr;
}

std::string builtin_cost_names() {
  std::string out;
  for (const Machine& machine : kMachines) out += fmt::format("{}{}", out.empty() ? "" : ", ", machine.name);
  return out;
}

}  // namespace millrace
