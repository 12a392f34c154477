#include "models/npu/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

constexpr int kSitesOfLayer = 4;

const NpuTransformer kNpuTransformers[] = {
    {"qwen1.5-1.8b", 24, 2048, 2048, 2048, 5504, true},
    {"gemma-2b", 18, 2048, 2048, 256, 16384, true},
};

// Adds the subgraphs of a prompt.
class PromptGraph {
 public:
  PromptGraph(const NpuTransformer& model, const NpuPlan& plan, const NpuModel& npu)
      : model_(model), plan_(plan), npu_(npu), machine_(npu.machine()) {}

  std::vector<NpuSubgraph> build() && {
    const int64_t rows = plan_.chunk > 0 ? plan_.chunk : plan_.prompt;
    const int64_t chunks = (plan_.prompt + rows - 1) / rows;
    std::vector<int32_t> attended(static_cast<size_t>(model_.layers), -1);  // by layer: attention of the last chunk
    for (int64_t c = 0; c < chunks; ++c) {
      std::vector<int32_t> last;
      for (int64_t l = 0; l < model_.layers; ++l)
        add_layer(fmt::format("chunk {}, layer {}: ", c, l), l, rows, c * rows, attended[static_cast<size_t>(l)], last);
    }
    return std::move(out_);
  }

 private:
  using Numbers = std::vector<int32_t>;

  int32_t add(std::string name, bool on_npu, double seconds, Numbers after) {
    out_.push_back({std::move(name), on_npu, seconds, std::move(after)});
    return static_cast<int32_t>(out_.size()) - 1;
  }

  // Returns the seconds of norms, activations, sums and rounding that read and write `floats` floats of each row.
  double row_seconds(int64_t rows, int64_t floats) const {
    return 4.0 * static_cast<double>(rows * floats) / machine_.float_bytes;
  }

  // Returns true if the input has shadow outliers. The plan's fraction of all inputs has them, spread evenly.
  bool has_shadow(int64_t layer, int site) const {
    const double kept = 1 - plan_.pruned;
    const auto before = static_cast<double>(layer * kSitesOfLayer + site);
    return std::floor((before + 1) * kept + 1e-9) > std::floor(before * kept + 1e-9);
  }

  // The products with one input. Returns the subgraphs whose results add up to it.
  Numbers add_products(const std::string& name, int64_t layer, int site, int64_t rows, int64_t inputs, int64_t outputs,
                       int32_t after) {
    const double seconds = npu_.run_seconds({rows, inputs, outputs});
    if (plan_.group_scales) return {add(name, true, seconds * machine_.group_factor, {after})};
    Numbers out = {add(name, true, seconds, {after})};
    if (has_shadow(layer, site)) {
      const double products = plan_.channels * static_cast<double>(rows * inputs * outputs);
      out.push_back(add(name + " (outliers)", false, machine_.shadow_start_seconds + products / machine_.float_products,
                        {after}));
    }
    return out;
  }

  void add_layer(const std::string& at, int64_t layer, int64_t rows, int64_t before, int32_t& attended, Numbers& last) {
    const NpuTransformer& m = model_;
    const int32_t norm = add(at + "norm", false, row_seconds(rows, 4 * m.width), last);
    Numbers after = add_products(at + "QKV", layer, 0, rows, m.width, m.q_width + 2 * m.kv_width, norm);
    if (attended >= 0) after.push_back(attended);  // keys of earlier chunks
    const auto pairs = static_cast<double>(rows) * (static_cast<double>(before) + static_cast<double>(rows) / 2);
    const double attention =
        2 * pairs * static_cast<double>(m.q_width) / machine_.float_products + row_seconds(rows, 3 * m.q_width);
    attended = add(at + "attention", false, attention, std::move(after));
    after = add_products(at + "output", layer, 1, rows, m.q_width, m.width, attended);
    const int32_t middle = add(at + "norm of the MLP", false, row_seconds(rows, 5 * m.width), std::move(after));
    after = add_products(at + "up", layer, 2, rows, m.width, m.hidden * (m.gated ? 2 : 1), middle);
    const int32_t active = add(at + "activation", false, row_seconds(rows, 3 * m.hidden), std::move(after));
    last = add_products(at + "down", layer, 3, rows, m.hidden, m.width, active);
  }

  const NpuTransformer& model_;
  const NpuPlan& plan_;
  const NpuModel& npu_;
  const NpuMachine& machine_;
  std::vector<NpuSubgraph> out_;
};

// The prompt on the processor alone, in int8.
NpuPrefill cpu_prefill(const NpuTransformer& model, int64_t prompt, const NpuMachine& machine) {
  NpuPrefill out{"processor alone", 0, {}};
  const auto tokens = static_cast<double>(prompt);
  out.timeline.seconds = tokens * static_cast<double>(model.weights()) / machine.cpu_int8_products +
                         tokens * tokens * static_cast<double>(model.q_width * model.layers) / machine.float_products;
  out.timeline.float_seconds = out.timeline.seconds;
  return out;
}

}  // namespace

double NpuModel::prepare_seconds(const NpuShape& shape) const {
  return machine_.prepare_weight_seconds * static_cast<double>(shape.inputs) * static_cast<double>(shape.outputs);
}

double NpuModel::run_seconds(const NpuShape& shape) const {
  const auto rows = static_cast<double>(shape.rows);
  const double products = rows * static_cast<double>(shape.inputs) * static_cast<double>(shape.outputs);
  return machine_.npu_start_seconds + products / (machine_.npu_products * rows / (rows + machine_.npu_half_rows));
}

int64_t NpuTransformer::weights() const {
  return layers * (width * (q_width + 2 * kv_width) + q_width * width + (gated ? 3 : 2) * width * hidden);
}

std::vector<NpuSubgraph> npu_subgraphs(const NpuTransformer& model, const NpuPlan& plan, const NpuModel& npu) {
  return PromptGraph(model, plan, npu).build();
}

NpuPrefill plan_npu_prefill(const NpuTransformer& model, const NpuPlan& plan, const NpuModel& npu) {
  NpuPrefill out;
  if (plan.chunk == 0)  // a graph has the prompt's length, so that it is prepared with it
    out.prepare_seconds = npu.prepare_seconds({plan.prompt, model.weights(), 1});
  out.timeline = schedule_subgraphs(npu_subgraphs(model, plan, npu), plan.order);
  return out;
}

std::vector<NpuPrefill> npu_ablation(const NpuTransformer& model, int64_t prompt, int64_t chunk, const NpuModel& npu) {
  std::vector<NpuPrefill> out = {cpu_prefill(model, prompt, npu.machine())};
  NpuPlan plan{.prompt = prompt, .chunk = 0, .group_scales = true, .order = NpuOrder::in_order};
  const auto add = [&](const char* name) {
    out.push_back(plan_npu_prefill(model, plan, npu));
    out.back().name = name;
  };
  add("NPU alone");
  plan.chunk = chunk;
  add("+ shared chunk graphs");
  plan.group_scales = false;
  add("+ shadow outliers");
  plan.order = NpuOrder::out_of_order;
  add("+ out of order");
  return out;
}

const NpuTransformer* find_npu_transformer(std::string_view name) {
  const auto found = std::ranges::find(kNpuTransformers, name, &NpuTransformer::name);
  return found == std::end(kNpuTransformers) ? nullptr : found;
}

std::span<const NpuTransformer> npu_transformers() { return kNpuTransformers; }

}  // namespace millrace
