// A device for the matrices and worker machines for attention (He and Zhai, 2024, "FastDecode"): the S-part takes as
// long as the device's arithmetic or its weights, the R-part as long as the workers' keys and values, and rows of
// queries, keys, values and outputs travel between them. One mini-batch pays all of them in turn; of two, one is on the
// device while the other is at the workers, and the weights are read twice.
//
//   {"kind": "workers", "flop_per_token": 13.2e9, "flops": 125e12, "flop_efficiency": 0.55, "weight_bytes": 13.5e9,
//    "bandwidth": 600e9, "bandwidth_efficiency": 0.7, "step_overhead": 0.002,
//    "workers": 2, "kv_bytes_per_token": 524288, "worker_bandwidth": 280e9, "worker_efficiency": 0.6,
//    "row_bytes_per_token": 1048576, "link_bandwidth": 12.5e9, "link_seconds": 0.00064, "batches": 2}
//
// Worker figures are of one machine; row bytes and link seconds are of all layers together.
#include <algorithm>

#include "schedule/costs/fields.h"

namespace millrace {
namespace {

class WorkersCost final : public CostModel {
 public:
  double flop_per_token = 0, flop_per_second = 1, weight_bytes = 0, bytes_per_second = 1, overhead = 0;
  double workers = 1, kv_bytes_per_token = 0, worker_bytes_per_second = 1;
  double row_bytes_per_token = 0, link_bandwidth = 1, link_seconds = 0, swap_bandwidth = 1;
  int64_t batches = 2;

  double step_seconds(const StepShape& shape) const override {
    const double tokens = shape.whole_tokens();
    const auto parts = static_cast<double>(tokens < 2 ? 1 : batches);  // one token is one mini-batch
    const double matrices = std::max(tokens * flop_per_token / flop_per_second,
                                     parts * weight_bytes * shape.read_layers() / bytes_per_second);
    const double attention =
        static_cast<double>(shape.keys) * kv_bytes_per_token / (workers * worker_bytes_per_second) +
        tokens * row_bytes_per_token / link_bandwidth + parts * link_seconds;
    return (parts > 1 ? std::max(matrices, attention) : matrices + attention) + overhead;
  }
  double swap_seconds(int64_t tokens) const override {
    return static_cast<double>(tokens) * kv_bytes_per_token / swap_bandwidth;
  }
};

}  // namespace

Result<std::unique_ptr<CostModel>> make_workers_cost(const CostFields& fields) {
  auto cost = std::make_unique<WorkersCost>();
  MILLRACE_TRY(cost->flop_per_token, fields.number("flop_per_token", 0, 1e18));
  MILLRACE_TRY(const double flops, fields.number("flops", 1e6, 1e21));
  MILLRACE_TRY(const double flop_efficiency, fields.number("flop_efficiency", 1e-3, 1, 1));
  MILLRACE_TRY(cost->weight_bytes, fields.number("weight_bytes", 0, 1e15));
  MILLRACE_TRY(const double bandwidth, fields.number("bandwidth", 1e6, 1e16));
  MILLRACE_TRY(const double bandwidth_efficiency, fields.number("bandwidth_efficiency", 1e-3, 1, 1));
  MILLRACE_TRY(cost->overhead, fields.number("step_overhead", 1e-9, 10));
  MILLRACE_TRY(cost->workers, fields.number("workers", 1, 4096));
  MILLRACE_TRY(cost->kv_bytes_per_token, fields.number("kv_bytes_per_token", 0, 1e9));
  MILLRACE_TRY(const double worker_bandwidth, fields.number("worker_bandwidth", 1e6, 1e16));
  MILLRACE_TRY(const double worker_efficiency, fields.number("worker_efficiency", 1e-3, 1, 1));
  MILLRACE_TRY(cost->row_bytes_per_token, fields.number("row_bytes_per_token", 0, 1e9));
  MILLRACE_TRY(cost->link_bandwidth, fields.number("link_bandwidth", 1e6, 1e16));
  MILLRACE_TRY(cost->link_seconds, fields.number("link_seconds", 0, 10, 0));
  MILLRACE_TRY(cost->swap_bandwidth, fields.number("swap_bandwidth", 1e6, 1e16, 16e9));
  MILLRACE_TRY(const double batches, fields.number("batches", 1, 2, 2));
  cost->flop_per_second = flops * flop_efficiency;
  cost->bytes_per_second = bandwidth * bandwidth_efficiency;
  cost->worker_bytes_per_second = worker_bandwidth * worker_efficiency;
  cost->batches = batches < 2 ? 1 : 2;
  return std::unique_ptr<CostModel>(std::move(cost));
}

}  // namespace millrace
