// ForwardSwitches: other ways to compute a pass. The family `kernel`: each member sets some of them, so that the gain
// of an engine's kernels can be measured. Members are one file each under kernel_switches/ and one entry in
// kernel_switches/builtin.cc.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "attention/pattern.h"
#include "attention/switches.h"
#include "attention/workers/options.h"
#include "base/registry.h"
#include "exit/exit_gate.h"
#include "kernels/shape_table.h"

namespace millrace {

struct NpuOptions;  // models/npu/options.h

// Operations that run as one. When off, each operation is a separate job, with the same arithmetic in the same order:
// same bits.
struct FusedParts {
  bool rows = true;        // adding the last block's output, norm and rounding: one pass over the rows
  bool qkv = true;         // Q, K and V: one rounding of their input and one job
  bool heads = true;       // norms, rotation, scale and storing of heads: one pass over the rows
  bool gate_up = true;     // gate and up: one rounding of their input and one job
  bool activation = true;  // activation and rounding: one pass over the rows
  bool bias = true;        // biases are added by the product's job
  bool experts = true;     // gate and up of all experts of a layer: one job; their down too
};

struct ForwardSwitches {
  FusedParts fused;
  AttentionSwitches attention;
  std::shared_ptr<const AttentionPattern> pattern;  // owns attention.pattern
  // Gate of streams that name none; null: they run every layer. Whoever fills a batch passes it on
  // (ModelRunner::exit_by()).
  std::shared_ptr<const ExitGate> exit;
  std::shared_ptr<const ShapeTable> shapes;  // null: products take the way that their kernels choose
  double expert_capacity = 0;                // 0: experts compute the rows that chose them; else padded_experts
  std::shared_ptr<const NpuOptions> npu;     // null: rows of prompts are computed as rows of answers are
  // Workers that hold keys and values and run attention; null: attention is in place.
  std::shared_ptr<const AttentionWorkerOptions> workers;
};

// Rows that every expert computes for `pairs` choices of experts: capacity times the mean, at least one.
int64_t padded_rows(double capacity, int64_t pairs, int64_t experts);

inline constexpr std::string_view kPatternPrefix = "attention=";

struct KernelSwitch {
  // Errors: user.
  Result<void> (*set)(const OptionValues& options, ForwardSwitches& switches) = nullptr;
};

// The first one is the default of a pass.
const Registry<KernelSwitch>& kernel_switches();

// `chosen`: NAME[:key=value,...] each; attention=NAME[:key=value,...] chooses an attention pattern, exit=NAME[:...] an
// exit gate. Errors: user, after "kernel NAME: ", "attention NAME: " or "exit NAME: ".
Result<ForwardSwitches> make_forward_switches(std::span<const std::string> chosen);

}  // namespace millrace
