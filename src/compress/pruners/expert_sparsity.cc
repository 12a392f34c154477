// Expert pruning (Lu et al., 2024, "Not All Experts are Equal: Efficient Expert Pruning and Skipping for
// Mixture-of-Experts Large Language Models"): in each layer the r experts stay that together change the layer's output
// least on the calibration text. All choices of r experts are tried: with the outputs of every expert on the tokens
// that the layer read, the router chooses among the r, and the squared difference to the output with all experts is
// summed. The output is an ordinary model with fewer experts. The paper's skipping of experts at run time is not part
// of it.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "compress/factories.h"
#include "compress/plan_edits.h"
#include "compress/structural_pass.h"
#include "kernels/activation.h"
#include "kernels/linear.h"
#include "models/blocks/blocks.h"
#include "models/router.h"

namespace millrace {
namespace {

constexpr int64_t kMaxChoices = 20000;  // of experts, that are tried

// n over k; at most kMaxChoices + 1.
int64_t choices_of(int64_t n, int64_t k) {
  double out = 1;
  for (int64_t i = 1; i <= k; ++i) out = out * static_cast<double>(n - k + i) / static_cast<double>(i);
  return out > static_cast<double>(kMaxChoices) ? kMaxChoices + 1 : static_cast<int64_t>(out + 0.5);
}

// All ascending choices of k of n, in lexical order.
std::vector<std::vector<int32_t>> all_choices(int32_t n, int32_t k) {
  std::vector<std::vector<int32_t>> out;
  std::vector<int32_t> now(static_cast<size_t>(k));
  for (int32_t i = 0; i < k; ++i) now[static_cast<size_t>(i)] = i;
  while (true) {
    out.push_back(now);
    int32_t at = k - 1;
    while (at >= 0 && now[static_cast<size_t>(at)] == n - k + at) --at;
    if (at < 0) return out;
    ++now[static_cast<size_t>(at)];
    for (int32_t i = at + 1; i < k; ++i) now[static_cast<size_t>(i)] = now[static_cast<size_t>(i - 1)] + 1;
  }
}

// The rows that the routers of all layers read, of every `stride`-th token.
class RouterInputs final : public ForwardObserver {
 public:
  RouterInputs(const ArchSpec& spec, int64_t stride)
      : spec_(spec), stride_(stride), rows(spec.layers.size()), seen_(spec.layers.size()) {}

  bool taps(const LinearId& id) const override { return id.kind == LinearKind::router; }
  void input(const LinearInput& in) override {
    const auto layer = static_cast<size_t>(in.id.layer);
    for (int64_t t = 0; t < in.tokens; ++t)
      if (seen_[layer]++ % stride_ == 0)
        rows[layer].insert(rows[layer].end(), in.x + t * spec_.width, in.x + (t + 1) * spec_.width);
  }

 private:
  const ArchSpec& spec_;
  int64_t stride_;

 public:
  std::vector<std::vector<float>> rows;  // [tokens, width] of each layer

 private:
  std::vector<int64_t> seen_;
};

// One layer's outputs with all or some of its experts.
class ExpertLayer {
 public:
  ExpertLayer(StructuralWork& work, int64_t layer, const std::vector<float>& x)
      : work_(work),
        layer_(layer),
        moe_(work.spec.moe),
        x_(x),
        width_(work.spec.width),
        tokens_(std::ssize(x) / work.spec.width) {}

  // Computes the logits of the router and the outputs of all experts.
  Result<void> prepare() {
    const std::string prefix = fmt::format("blk.{}.", layer_);
    MILLRACE_TRY(const std::vector<float> router, matrix(prefix + "ffn_gate_inp", 0, moe_.experts, width_));
    logits_.resize(static_cast<size_t>(tokens_ * moe_.experts));
    MILLRACE_TRY_VOID(multiply(router, moe_.experts, width_, x_.data(), logits_.data()));
    outputs_.resize(static_cast<size_t>(moe_.experts * tokens_ * width_));
    std::vector<float> gate(static_cast<size_t>(tokens_ * moe_.hidden)), up(gate.size());
    for (int64_t e = 0; e < moe_.experts; ++e) {
      MILLRACE_TRY(const std::vector<float> gates, matrix(prefix + "ffn_gate", e, moe_.hidden, width_));
      MILLRACE_TRY(const std::vector<float> ups, matrix(prefix + "ffn_up", e, moe_.hidden, width_));
      MILLRACE_TRY(const std::vector<float> downs, matrix(prefix + "ffn_down", e, width_, moe_.hidden));
      MILLRACE_TRY_VOID(multiply(gates, moe_.hidden, width_, x_.data(), gate.data()));
      MILLRACE_TRY_VOID(multiply(ups, moe_.hidden, width_, x_.data(), up.data()));
      work_.pool.parallel_for(tokens_, [&](int64_t t, int) {
        activate(work_.spec, work_.kernels, &gate[static_cast<size_t>(t * moe_.hidden)],
                 &up[static_cast<size_t>(t * moe_.hidden)], moe_.hidden);
      });
      MILLRACE_TRY_VOID(
          multiply(downs, width_, moe_.hidden, gate.data(), &outputs_[static_cast<size_t>(e * tokens_ * width_)]));
    }
    std::vector<int32_t> all;
    for (int32_t e = 0; e < moe_.experts; ++e) all.push_back(e);
    full_.resize(static_cast<size_t>(tokens_ * width_));
    work_.pool.parallel_for(tokens_, [&](int64_t t, int) { mix(all, t, &full_[static_cast<size_t>(t * width_)]); });
    for (float value : full_) size_ += static_cast<double>(value) * value;
    return {};
  }

  // The squared change of the outputs with these experts only, over the squared outputs.
  double error(const std::vector<int32_t>& kept) const {
    std::vector<float> row(static_cast<size_t>(width_));
    double sum = 0;
    for (int64_t t = 0; t < tokens_; ++t) {
      mix(kept, t, row.data());
      for (int64_t i = 0; i < width_; ++i) {
        const double change =
            static_cast<double>(row[static_cast<size_t>(i)]) - full_[static_cast<size_t>(t * width_ + i)];
        sum += change * change;
      }
    }
    return size_ > 0 ? sum / size_ : 0;
  }

  static int64_t bytes(const ArchSpec& spec, int64_t tokens) {
    const MoeSpec& moe = spec.moe;
    return 4 * (tokens * ((moe.experts + 2) * spec.width + moe.experts + 3 * moe.hidden) + 6 * moe.hidden * spec.width);
  }

 private:
  // A layer's matrix, or that of an expert, however the file stores them.
  Result<std::vector<float>> matrix(const std::string& name, int64_t expert, int64_t rows, int64_t cols) {
    auto found = find_output(work_.plan, fmt::format("{}_exps.weight", name));
    const bool stacked = found.ok();
    if (!stacked) found = find_output(work_.plan, fmt::format("{}.{}.weight", name, expert));
    if (!found.ok()) found = find_output(work_.plan, name + ".weight");
    if (!found.ok()) return found.error();
    OutputTensor one = **found;
    int64_t first = 0;
    if (stacked && one.parts.size() > 1)
      one.parts = {one.parts.at(static_cast<size_t>(expert))};
    else if (stacked)
      first = expert * rows;
    const SourceTensor& part = one.parts.front();
    if (part.cols != cols || part.rows < first + rows || part.transposed)
      return Error::unsupported(fmt::format("tensor {}: its layout is not that of {} experts", one.name, moe_.experts));
    std::vector<float> out(static_cast<size_t>(rows * cols));
    work_.pool.parallel_for(rows, [&](int64_t r, int) { part.read_rows(first + r, 1, out.data() + r * cols); });
    return out;
  }

  // y [tokens, rows] = x W^T.
  Result<void> multiply(const std::vector<float>& values, int64_t rows, int64_t cols, const float* x, float* y) const {
    Weight weight;
    weight.name.assign("expert");
    weight.format = find_format("f32");
    weight.rows = rows;
    weight.cols = cols;
    weight.data = reinterpret_cast<const uint8_t*>(values.data());
    MILLRACE_TRY_VOID(pack_weight(weight, work_.kernels, work_.pool));
    const int64_t bytes = tokens_ * activation_row_bytes(Activation::f32, cols);
    MILLRACE_TRY(auto scratch, AlignedBuffer::allocate(bytes, "experts"));
    const ActivationRows rounded =
        encode_activations(work_.kernels, work_.pool, Activation::f32, x, cols, tokens_, cols, scratch.data());
    linear(work_.pool, weight, rounded, y, rows);
    return {};
  }

  // The output of token t, with the router's choice among these experts.
  void mix(const std::vector<int32_t>& experts, int64_t t, float* out) const {
    MoeSpec moe = moe_;
    moe.experts = std::ssize(experts);
    moe.used = std::min(moe.used, moe.experts);
    std::vector<float> logits, weights(static_cast<size_t>(moe.used));
    std::vector<int32_t> chosen(weights.size());
    for (int32_t e : experts) logits.push_back(logits_[static_cast<size_t>(t * moe_.experts + e)]);
    moe.router->choose(moe, work_.kernels, logits.data(), chosen.data(), weights.data());
    std::fill_n(out, width_, 0.0f);
    for (size_t rank = 0; rank < chosen.size(); ++rank) {
      const int64_t expert = experts[static_cast<size_t>(chosen[rank])];
      const float* from = &outputs_[static_cast<size_t>((expert * tokens_ + t) * width_)];
      for (int64_t i = 0; i < width_; ++i) out[i] += weights[rank] * from[i];
    }
  }

  StructuralWork& work_;
  int64_t layer_;
  const MoeSpec& moe_;
  const std::vector<float>& x_;
  int64_t width_, tokens_;
  std::vector<float> logits_;   // [tokens, experts]
  std::vector<float> outputs_;  // [experts, tokens, width]
  std::vector<float> full_;     // [tokens, width], with all experts
  double size_ = 0;             // sum of its squares
};

class ExpertSparsity final : public StructuralPass {
 public:
  ExpertSparsity(int64_t keep, int64_t tokens) : keep_(keep), tokens_(tokens) {}

  Result<void> reshape(StructuralWork& work) override {
    MILLRACE_TRY_VOID(check(work.spec));
    const int64_t stride = std::max<int64_t>(1, (work.calibration->tokens() + tokens_ - 1) / tokens_);
    const int64_t tokens = (work.calibration->tokens() + stride - 1) / stride;
    const int64_t bytes =
        work.spec.layer_count() * tokens * work.spec.width * 4 + ExpertLayer::bytes(work.spec, tokens);
    MILLRACE_TRY(const MemoryHold hold,
                 MemoryHold::take(work.accounts, "outputs of experts", bytes, "raise --memory, or lower tokens"));
    RouterInputs inputs(work.spec, stride);
    MILLRACE_TRY_VOID(
        work.calibration->run(inputs, {.to = work.spec.layer_count()}, true, [] { return Result<void>(); }));
    std::vector<std::vector<int32_t>> kept(work.spec.layers.size());
    for (size_t i = 0; i < kept.size(); ++i)
      if (work.spec.layers[i].moe) MILLRACE_TRY_VOID(choose(work, static_cast<int64_t>(i), inputs.rows[i], kept[i]));
    return keep_experts(work.plan, work.spec, work.architecture, kept);
  }

 private:
  Result<void> check(const ArchSpec& spec) const {
    const MoeSpec& moe = spec.moe;
    if (moe.experts == 0) return Error::unsupported("--pass expert_sparsity: the model has no experts");
    if (keep_ < moe.used || keep_ > moe.experts)
      return Error::user(fmt::format("--pass expert_sparsity: keep must be {} to {} for this model, is {}", moe.used,
                                     moe.experts, keep_));
    if (moe.groups > 1 || !moe.selection_bias.empty() || !spec.gated)
      return Error::unsupported("--pass expert_sparsity: experts in groups, with biases or without gates");
    if (choices_of(moe.experts, keep_) > kMaxChoices)
      return Error::unsupported(
          fmt::format("--pass expert_sparsity: there are more than {} choices of {} of {} experts", kMaxChoices, keep_,
                      moe.experts));
    return {};
  }

  Result<void> choose(StructuralWork& work, int64_t index, const std::vector<float>& x,
                      std::vector<int32_t>& kept) const {
    ExpertLayer layer(work, index, x);
    MILLRACE_TRY_VOID(layer.prepare());
    const auto choices = all_choices(static_cast<int32_t>(work.spec.moe.experts), static_cast<int32_t>(keep_));
    std::vector<double> errors(choices.size());
    work.pool.parallel_for(std::ssize(choices), [&](int64_t i, int) {
      errors[static_cast<size_t>(i)] = layer.error(choices[static_cast<size_t>(i)]);
    });
    const auto best = static_cast<size_t>(std::ranges::min_element(errors) - errors.begin());
    kept = choices[best];
    PassRow row{"experts kept", "", {{"output_error", errors[best]}, {"worst_output_error", std::ranges::max(errors)}}};
    for (int32_t e : kept) row.why += (row.why.empty() ? "" : ", ") + std::to_string(e);
    work.report.push_back({fmt::format("blk.{}", index), std::move(row)});
    return {};
  }

  int64_t keep_, tokens_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_expert_sparsity_pass(const OptionValues& options) {
  return std::unique_ptr<Pass>(std::make_unique<ExpertSparsity>(options.integer("keep"), options.integer("tokens")));
}

}  // namespace millrace
