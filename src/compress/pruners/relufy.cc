// Relufication (Mirzadeh et al., 2023, "ReLU Strikes Back: Exploiting Activation Sparsity in Large Language Models"):
// the MLPs' SiLU or GELU becomes a ReLU, or the shifted ReLU max(0, x - shift), which is 0 more often. The weights stay
// as they are; the shift is written as the gates' bias. The paper then trains the model further; this pass does not.
#include <fmt/format.h>

#include <algorithm>

#include "compress/factories.h"
#include "compress/structural_pass.h"

namespace millrace {
namespace {

class Relufy final : public StructuralPass {
 public:
  explicit Relufy(float shift) : shift_(shift) {}

  uint32_t needs() const override { return kNoStatistics; }

  Result<void> reshape(StructuralWork& work) override {
    const ArchSpec& spec = work.spec;
    const bool experts = std::ranges::any_of(spec.layers, [](const LayerSpec& layer) { return layer.moe; });
    const bool smooth = spec.activation == HiddenActivation::silu || spec.activation == HiddenActivation::gelu_tanh ||
                        spec.activation == HiddenActivation::gelu_erf;
    if (experts || spec.encoder || !smooth)
      return Error::unsupported(
          "--pass relufy: takes models with dense MLPs of SiLU or GELU that generate text; this "
          "one has another activation, experts, or no head");
    work.plan.writer.set_string(work.architecture + ".hidden_activation", "relu");
    int64_t layers = 0;
    for (int64_t i = 0; i < spec.layer_count(); ++i) {
      LayerSpec layer = spec.layers[static_cast<size_t>(i)];
      set_own_sizes(spec, layer);
      if (!layer.has_dense_mlp()) continue;
      ++layers;
      if (shift_ > 0) MILLRACE_TRY_VOID(add_shift(work, i, layer.hidden));
    }
    work.report.push_back({"mlp", PassRow{"relu", "", {{"layers", static_cast<double>(layers)}}}});
    return {};
  }

 private:
  // Adds the bias -shift of a layer's gates.
  Result<void> add_shift(StructuralWork& work, int64_t layer, int64_t hidden) const {
    const std::string name = fmt::format("blk.{}.{}", layer, work.spec.gated ? "ffn_gate" : "ffn_up");
    const auto matrix = std::ranges::find(work.plan.tensors, name + ".weight", &OutputTensor::name);
    const bool biased =
        std::ranges::find(work.plan.tensors, name + ".bias", &OutputTensor::name) != work.plan.tensors.end();
    if (matrix == work.plan.tensors.end() || biased)
      return Error::unsupported(
          fmt::format("--pass relufy: {}.weight is missing, or has a bias already; only shift=0 is possible", name));
    SourceTensor values;
    values.name = name + ".bias";
    values.rows = 1;
    values.cols = hidden;
    values.is_vector = true;
    values.values = std::make_shared<const std::vector<float>>(static_cast<size_t>(hidden), -shift_);
    OutputTensor bias;
    bias.name = values.name;
    bias.format = find_format("f32");
    bias.dims = {hidden};
    bias.parts.push_back(std::move(values));
    work.plan.tensors.insert(matrix + 1, std::move(bias));
    return {};
  }

  float shift_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_relufy_pass(const OptionValues& options) {
  return std::unique_ptr<Pass>(std::make_unique<Relufy>(static_cast<float>(options.number("shift"))));
}

}  // namespace millrace
