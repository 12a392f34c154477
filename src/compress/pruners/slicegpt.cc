// SliceGPT (Ashkboos et al., 2024, "SliceGPT: Compress Large Language Models by Deleting Rows and Columns"): the
// residual stream is rotated to its principal components over the calibration text, and those of least variance are
// deleted from every matrix that reads or writes it. RMSNorm without weights commutes with a rotation, so nothing
// changes until something is deleted: norm weights move into the matrices that follow.
//
//   x -> P Q^T x     readers W -> sqrt(d / d') W diag(norm weights) Q P^T     writers W -> P Q^T W
//
// with d dims before, d' after. The root makes up for the mean over fewer dims in the norms, whose epsilon becomes
// d / d' of what it was. The paper has another rotation for each block, and matrices between them on the residual
// stream; an ordinary file has no place for these, so there is one rotation for the model, of the components of all
// layers together. A tied head gets a matrix of its own.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compress/factories.h"
#include "compress/factorizers/symmetric_eigen.h"
#include "compress/plan_edits.h"
#include "compress/structural_pass.h"

namespace millrace {
namespace {

constexpr const char* kHead = "output.weight";
constexpr int64_t kSliceStep = 32;      // widths are multiples
constexpr int64_t kMostWidth = 8192;    // of a model: the time grows with its cube
constexpr int64_t kStreamColumns = 32;  // of the second moments, that one thread sums

// The second moments of the residual stream before each layer and after the last, rows scaled to length 1.
class StreamMoments final : public ForwardObserver {
 public:
  StreamMoments(int64_t width, ThreadPool& pool) : sums_(static_cast<size_t>(width * width)), pool_(pool) {}

  void residual(int64_t, const float* rows, int64_t tokens, int64_t width) override {
    std::vector<double> unit(static_cast<size_t>(tokens * width));
    pool_.parallel_for(tokens, [&](int64_t t, int) {
      double square = 0;
      for (int64_t i = 0; i < width; ++i) square += static_cast<double>(rows[t * width + i]) * rows[t * width + i];
      const double scale = square > 0 ? 1 / std::sqrt(square) : 0;
      for (int64_t i = 0; i < width; ++i) unit[static_cast<size_t>(t * width + i)] = scale * rows[t * width + i];
    });
    pool_.parallel_for((width + kStreamColumns - 1) / kStreamColumns, [&](int64_t part, int) {
      const int64_t begin = part * kStreamColumns, end = std::min(width, begin + kStreamColumns);
      for (int64_t t = 0; t < tokens; ++t) {
        const double* row = &unit[static_cast<size_t>(t * width)];
        for (int64_t i = begin; i < end; ++i)
          for (int64_t j = 0; j < width; ++j) sums_[static_cast<size_t>(i * width + j)] += row[i] * row[j];
      }
    });
  }

  std::vector<double> take() { return std::move(sums_); }

 private:
  std::vector<double> sums_;  // [width, width]
  ThreadPool& pool_;
};

// Rewrites the tensors of a plan.
class Slicer {
 public:
  Slicer(StructuralWork& work, const EigenPairs& eigen, int64_t kept)
      : work_(work), eigen_(eigen), width_(work.spec.width), kept_(kept) {}

  Result<void> run() {
    const bool tied = !find_output(work_.plan, kHead).ok();
    MILLRACE_TRY(OutputTensor* const embedding, find_output(work_.plan, "token_embd.weight"));
    OutputTensor head = *embedding;
    head.name = kHead;
    if (tied) MILLRACE_TRY_VOID(read(head, "output_norm.weight"));
    MILLRACE_TRY_VOID(read(*embedding, ""));
    if (!tied) MILLRACE_TRY_VOID(read("output.weight", "output_norm.weight"));
    for (int64_t layer = 0; layer < work_.spec.layer_count(); ++layer) MILLRACE_TRY_VOID(slice_layer(layer));
    MILLRACE_TRY_VOID(fill("output_norm.weight"));
    if (tied) work_.plan.tensors.push_back(std::move(head));
    set_sizes();
    return {};
  }

 private:
  Result<void> slice_layer(int64_t layer) {
    const std::string prefix = fmt::format("blk.{}.", layer);
    for (const char* part : {"attn_q", "attn_k", "attn_v", "attn_qkv"})
      MILLRACE_TRY_VOID(read(prefix + part + ".weight", prefix + "attn_norm.weight"));
    for (const char* part : {"ffn_gate", "ffn_up"})
      MILLRACE_TRY_VOID(read(prefix + part + ".weight", prefix + "ffn_norm.weight"));
    for (const char* part : {"attn_output", "ffn_down"}) {
      MILLRACE_TRY_VOID(write(prefix + part + ".weight"));
      MILLRACE_TRY_VOID(write(prefix + part + ".bias"));
    }
    MILLRACE_TRY_VOID(fill(prefix + "attn_norm.weight"));
    return fill(prefix + "ffn_norm.weight");
  }

  // A matrix that reads the residual stream; nothing if there is none of this name.
  Result<void> read(const std::string& name, const std::string& norm) {
    auto found = find_output(work_.plan, name);
    return found.ok() ? read(**found, norm) : Result<void>();
  }

  // `norm`: the weights of the norm before it; empty: there is none.
  Result<void> read(OutputTensor& tensor, const std::string& norm) {
    std::vector<float> scale(static_cast<size_t>(width_), 1.0f);
    if (!norm.empty()) {
      MILLRACE_TRY(OutputTensor* const weights, find_output(work_.plan, norm));
      scale = values_of(*weights, work_.pool);
      const double wider = std::sqrt(static_cast<double>(width_) / static_cast<double>(kept_));
      for (float& value : scale) value = static_cast<float>(value * wider);
    }
    MILLRACE_TRY_VOID(check(tensor, tensor.dims.back(), kept_));
    const std::vector<float> before = values_of(tensor, work_.pool);
    const int64_t rows = std::ssize(before) / width_;
    std::vector<float> after(static_cast<size_t>(rows * kept_));
    work_.pool.parallel_for(rows, [&](int64_t r, int) {
      std::vector<double> scaled(static_cast<size_t>(width_));
      for (int64_t i = 0; i < width_; ++i)
        scaled[static_cast<size_t>(i)] =
            static_cast<double>(before[static_cast<size_t>(r * width_ + i)]) * scale[static_cast<size_t>(i)];
      for (int64_t k = 0; k < kept_; ++k)
        after[static_cast<size_t>(r * kept_ + k)] = static_cast<float>(
            std::inner_product(scaled.begin(), scaled.end(), eigen_.vectors.begin() + k * width_, 0.0));
    });
    replace_values(tensor, rows, kept_, std::move(after));
    return {};
  }

  // A matrix or bias that is added to the residual stream; nothing if there is none of this name.
  Result<void> write(const std::string& name) {
    auto found = find_output(work_.plan, name);
    if (!found.ok()) return {};
    OutputTensor& tensor = **found;
    const bool bias = tensor.dims.size() == 1;
    MILLRACE_TRY_VOID(check(tensor, tensor.dims.front(), bias ? kept_ : tensor.dims.back()));
    const std::vector<float> before = values_of(tensor, work_.pool);
    const int64_t cols = std::ssize(before) / width_;
    std::vector<float> after(static_cast<size_t>(kept_ * cols));
    work_.pool.parallel_for(kept_, [&](int64_t k, int) {
      std::vector<double> sums(static_cast<size_t>(cols));
      for (int64_t i = 0; i < width_; ++i) {
        const double factor = eigen_.vectors[static_cast<size_t>(k * width_ + i)];
        for (int64_t c = 0; c < cols; ++c)
          sums[static_cast<size_t>(c)] += factor * before[static_cast<size_t>(i * cols + c)];
      }
      std::transform(sums.begin(), sums.end(), after.begin() + k * cols,
                     [](double sum) { return static_cast<float>(sum); });
    });
    replace_values(tensor, bias ? 1 : kept_, bias ? kept_ : cols, std::move(after));
    return {};
  }

  // Norm weights: they are in the matrices now.
  Result<void> fill(const std::string& name) {
    MILLRACE_TRY(OutputTensor* const tensor, find_output(work_.plan, name));
    replace_values(*tensor, 1, kept_, std::vector<float>(static_cast<size_t>(kept_), 1.0f));
    return {};
  }

  Result<void> check(const OutputTensor& tensor, int64_t stream, int64_t cols) const {
    if (stream != width_ || tensor.transpose)
      return Error::unsupported(
          fmt::format("tensor {}: it does not have {} dims of the residual stream", tensor.name, width_));
    if (cols % tensor.format->block_values != 0)
      return Error::unsupported(
          fmt::format("tensor {}: {} columns are not whole blocks of {}; start from a file of floats", tensor.name,
                      cols, tensor.format->name));
    return {};
  }

  void set_sizes() {
    const ArchSpec& spec = work_.spec;
    const auto set = [&](const char* key, int64_t value) {
      work_.plan.writer.set_u32(work_.architecture + key, static_cast<uint32_t>(value));
    };
    set(".embedding_length", kept_);
    set(".attention.key_length", spec.head_dim);
    set(".attention.value_length", spec.head_dim);
    if (!spec.ropes.empty()) set(".rope.dimension_count", spec.ropes[0].rotated);
    work_.plan.writer.set_f32(work_.architecture + ".attention.layer_norm_rms_epsilon",
                              spec.norm_eps * static_cast<float>(width_) / static_cast<float>(kept_));
  }

  StructuralWork& work_;
  const EigenPairs& eigen_;
  int64_t width_, kept_;  // d, d'
};

class SliceGpt final : public StructuralPass {
 public:
  explicit SliceGpt(double keep) : keep_(keep) {}

  Result<void> reshape(StructuralWork& work) override {
    MILLRACE_TRY_VOID(check(work.spec));
    const int64_t width = work.spec.width;
    const auto wanted = static_cast<int64_t>(std::round(keep_ * static_cast<double>(width) / kSliceStep)) * kSliceStep;
    const int64_t kept = keep_ >= 1 ? width : std::clamp(wanted, kSliceStep, width);
    const int64_t bytes = (work.calibration->context() + width) * width * 8 + symmetric_eigen_bytes(width);
    MILLRACE_TRY(const MemoryHold hold,
                 MemoryHold::take(work.accounts, "principal components", bytes, "raise --memory"));
    StreamMoments moments(width, work.pool);
    MILLRACE_TRY_VOID(work.calibration->run(moments, work.spec.layer_count(), true, [] { return Result<void>(); }));
    const EigenPairs eigen = symmetric_eigen(moments.take(), width, kept, work.pool);
    if (!eigen.converged)
      return Error::unsupported("--pass slicegpt: the residual stream is not finite on the calibration text");
    const double all = std::accumulate(eigen.values.begin(), eigen.values.end(), 0.0);
    const double part = std::accumulate(eigen.values.begin(), eigen.values.begin() + kept, 0.0);
    work.report.push_back(
        {"residual stream",
         PassRow{"sliced", "", {{"dims", static_cast<double>(kept)}, {"kept_variance", all > 0 ? part / all : 1}}}});
    return Slicer(work, eigen, kept).run();
  }

 private:
  static Result<void> check(const ArchSpec& spec) {
    const bool plain = std::ranges::all_of(
        spec.layers, [](const LayerSpec& layer) { return layer.mixer == &kAttentionMixer && layer.mlp && !layer.moe; });
    if (spec.norm != NormKind::rms || !spec.pre_norm || spec.post_norm || spec.norm_offset != 0 ||
        spec.learned_positions || !plain)
      return Error::unsupported(fmt::format(
          "--pass slicegpt: {} has no place for it; it needs RMS norms before attention and dense MLPs only, and no "
          "learned positions",
          spec.arch));
    if (spec.width > kMostWidth || spec.width < kSliceStep)
      return Error::unsupported(
          fmt::format("--pass slicegpt: the model has {} dims, it takes {} to {}", spec.width, kSliceStep, kMostWidth));
    return {};
  }

  double keep_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_slicegpt_pass(const OptionValues& options) {
  return std::unique_ptr<Pass>(std::make_unique<SliceGpt>(options.number("keep")));
}

}  // namespace millrace
