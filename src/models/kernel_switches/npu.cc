// Prompts on an int8 device, with outliers in its shadow (Xu et al., 2024, "Fast On-device LLM Inference with NPUs"):
// models/npu/. Rows of answers run as they do without the switch.
#include "models/kernel_switches/records.h"
#include "models/npu/options.h"

namespace millrace {
namespace {

constexpr int64_t kChunkRows = 16;  // chunks are multiples of it

Result<void> set_npu(const OptionValues& options, ForwardSwitches& switches) {
  auto npu = std::make_shared<NpuOptions>();
  npu->chunk = options.integer("chunk");
  if (npu->chunk % kChunkRows != 0) return Error::user("chunk: must be a multiple of 16");
  const std::string& outliers = options.text("outliers");
  if (outliers != "shadow" && outliers != "none")
    return Error::user("outliers: unknown '" + outliers + "'; shadow or none");
  npu->shadow = outliers == "shadow";
  npu->pruned = options.number("pruned");
  npu->channels = options.number("channels");
  npu->threads = static_cast<int>(options.integer("threads"));
  const std::string& order = options.text("order");
  if (order != "out_of_order" && order != "in_order")
    return Error::user("order: unknown '" + order + "'; out_of_order or in_order");
  npu->order = order == "in_order" ? NpuOrder::in_order : NpuOrder::out_of_order;
  npu->file = options.text("scales");
  if (!npu->file.empty()) {
    MILLRACE_TRY(npu->scales, read_npu_scales(npu->file));
  }
  switches.npu = std::move(npu);
  return {};
}

}  // namespace

extern const KernelSwitch kNpu = {.set = set_npu};

}  // namespace millrace
