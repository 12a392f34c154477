// SliceGPT (Ashkboos et al., 2024, "SliceGPT: Compress Large Language Models by Deleting Rows and Columns"): the
// residual stream is rotated to its principal components over the calibration text, and those of least variance are
// deleted from every matrix that reads or writes it. RMSNorm without weights commutes with a rotation, so nothing
// changes until something is deleted: norm weights move into the matrices that follow.
//
//   x -> P Q^T x     readers W -> sqrt(d / d') W diag(norm weights) Q P^T     writers W -> P R^T W
//
// with d dims before, d' after. The root makes up for the mean over fewer dims in the norms, whose epsilon becomes
// d / d' of what it was. Q are the components before the block (a layer's attention or its MLP), R those before the
// next one. On its way past the block the stream is multiplied by the shortcut matrix P R^T Q P^T, which the model's
// file has as a further tensor (models/layer_matrices.h). With one rotation for the model, of the components of all
// layers together, R is Q, the shortcuts are the identity and the file is an ordinary one. A tied head gets a matrix of
// its own.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compress/factories.h"
#include "compress/plan_edits.h"
#include "compress/pruners/stream_rotations.h"
#include "compress/structural_pass.h"
#include "models/convert/format_choice.h"
#include "models/layer_matrices.h"
#include "models/layer_mixers.h"

namespace millrace {
namespace {

constexpr const char* kHead = "output.weight";
constexpr int64_t kSliceStep = 32;        // widths are multiples
constexpr int64_t kMaxModelWidth = 8192;  // of a model: the time grows with its cube

// Rewrites the tensors of a plan.
class Slicer {
 public:
  // `shortcuts`: number format of shortcut matrices.
  Slicer(StructuralWork& work, StreamRotations& rotations, const Format& shortcuts, int64_t kept)
      : work_(work), rotations_(rotations), shortcuts_(shortcuts), width_(work.spec.width), kept_(kept) {}

  Result<void> run() {
    const bool tied = !find_output(work_.plan, kHead).ok();
    MILLRACE_TRY(OutputTensor* const embedding, find_output(work_.plan, "token_embd.weight"));
    OutputTensor head = *embedding;
    head.name = kHead;
    MILLRACE_TRY(before_, rotations_.next());
    report(rotations_.each_block() ? "blk.0.attention" : "residual stream", *before_);
    MILLRACE_TRY_VOID(read(*embedding, ""));
    for (int64_t layer = 0; layer < work_.spec.layer_count(); ++layer) MILLRACE_TRY_VOID(slice_layer(layer));
    MILLRACE_TRY_VOID(tied ? read(head, "output_norm.weight") : read(kHead, "output_norm.weight"));
    MILLRACE_TRY_VOID(fill("output_norm.weight"));
    if (tied) made_.push_back(std::move(head));
    std::ranges::move(made_, std::back_inserter(work_.plan.tensors));
    set_sizes();
    return {};
  }

 private:
  Result<void> slice_layer(int64_t layer) {
    const std::string prefix = fmt::format("blk.{}.", layer);
    MILLRACE_TRY_VOID(slice_block(layer, false, {"attn_q", "attn_k", "attn_v", "attn_qkv"}, "attn_output"));
    MILLRACE_TRY_VOID(slice_block(layer, true, {"ffn_gate", "ffn_up"}, "ffn_down"));
    MILLRACE_TRY_VOID(fill(prefix + "attn_norm.weight"));
    return fill(prefix + "ffn_norm.weight");
  }

  // The attention or the MLP of a layer. From here on the stream has the coordinates of the next block.
  Result<void> slice_block(int64_t layer, bool mlp, std::initializer_list<const char*> readers, const char* writer) {
    const std::string prefix = fmt::format("blk.{}.", layer);
    for (const char* part : readers)
      MILLRACE_TRY_VOID(read(prefix + part + ".weight", prefix + (mlp ? "ffn_norm.weight" : "attn_norm.weight")));
    const std::shared_ptr<const EigenPairs> own = std::move(before_);
    MILLRACE_TRY(before_, rotations_.next());
    for (const char* part : {".weight", ".bias"}) MILLRACE_TRY_VOID(write(prefix + writer + part));
    if (own == before_) return {};
    report(!mlp                                    ? prefix + "mlp"
           : layer + 1 == work_.spec.layer_count() ? "head"
                                                   : fmt::format("blk.{}.attention", layer + 1),
           *before_);
    return add_shortcut(shortcut_tensor(layer, mlp), *own);
  }

  // The matrix from the coordinates of `own` to those of before_.
  Result<void> add_shortcut(std::string name, const EigenPairs& own) {
    OutputTensor tensor;
    tensor.name = std::move(name);
    tensor.format = &shortcuts_;
    tensor.dims = {kept_, kept_};
    MILLRACE_TRY_VOID(check(tensor, width_, kept_));
    std::vector<float> values(static_cast<size_t>(kept_ * kept_));
    work_.pool.parallel_for(kept_, [&](int64_t r, int) {
      const auto row = before_->vectors.begin() + r * width_;
      for (int64_t c = 0; c < kept_; ++c)
        values[static_cast<size_t>(r * kept_ + c)] =
            static_cast<float>(std::inner_product(row, row + width_, own.vectors.begin() + c * width_, 0.0));
    });
    replace_values(tensor, kept_, kept_, std::move(values));
    made_.push_back(std::move(tensor));
    return {};
  }

  void report(const std::string& part, const EigenPairs& eigen) {
    const double all = std::accumulate(eigen.values.begin(), eigen.values.end(), 0.0);
    const double some = std::accumulate(eigen.values.begin(), eigen.values.begin() + kept_, 0.0);
    work_.report.push_back(
        {part,
         PassRow{"sliced", "", {{"dims", static_cast<double>(kept_)}, {"kept_variance", all > 0 ? some / all : 1}}}});
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
            std::inner_product(scaled.begin(), scaled.end(), before_->vectors.begin() + k * width_, 0.0));
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
        const double factor = before_->vectors[static_cast<size_t>(k * width_ + i)];
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
  StreamRotations& rotations_;
  const Format& shortcuts_;
  int64_t width_, kept_;                      // d, d'
  std::shared_ptr<const EigenPairs> before_;  // of the block whose matrices are rewritten
  std::vector<OutputTensor> made_;
};

struct SliceOptions {
  double keep = 0.75;
  bool each_block = false;
  const Format* shortcuts = nullptr;  // null: the model's own, if it has floats
};

class SliceGpt final : public StructuralPass {
 public:
  explicit SliceGpt(const SliceOptions& options) : options_(options) {}

  Result<void> reshape(StructuralWork& work) override {
    MILLRACE_TRY_VOID(check(work.spec));
    const int64_t width = work.spec.width;
    const auto wanted =
        static_cast<int64_t>(std::round(options_.keep * static_cast<double>(width) / kSliceStep)) * kSliceStep;
    const int64_t kept = options_.keep >= 1 ? width : std::clamp(wanted, kSliceStep, width);
    MILLRACE_TRY(const OutputTensor* const embedding, find_output(work.plan, "token_embd.weight"));
    const Format* shortcuts = options_.shortcuts;
    if (!shortcuts) shortcuts = embedding->format->block_values == 1 ? embedding->format : find_format("f16");
    StreamRotations rotations(work, kept, options_.each_block);
    return Slicer(work, rotations, *shortcuts, kept).run();
  }

 private:
  static Result<void> check(const ArchSpec& spec) {
    const bool plain = std::ranges::all_of(spec.layers, [](const LayerSpec& layer) {
      return is_plain_attention(layer) && !layer.attention_gate && layer.mlp && !layer.moe;
    });
    const bool experts = std::ranges::any_of(spec.layers, &LayerSpec::moe);
    if (spec.norm != NormKind::rms || !spec.pre_norm || spec.post_norm || spec.norm_offset != 0 ||
        spec.learned_positions || !plain)
      return Error::unsupported(fmt::format(
          "--pass slicegpt: {} has no place for it; it needs RMS norms before attention and dense MLPs only, and no "
          "learned positions",
          experts ? "a mixture of experts" : spec.arch));
    if (spec.width > kMaxModelWidth || spec.width < kSliceStep)
      return Error::unsupported(fmt::format("--pass slicegpt: the model has {} dims, it takes {} to {}", spec.width,
                                            kSliceStep, kMaxModelWidth));
    return {};
  }

  SliceOptions options_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_slicegpt_pass(const OptionValues& values) {
  SliceOptions options{.keep = values.number("keep")};
  const std::string &rotations = values.text("rotations"), &format = values.text("shortcuts");
  if (rotations != "blocks" && rotations != "one")
    return Error::user(fmt::format("rotations '{}': must be one or blocks", rotations));
  options.each_block = rotations == "blocks";
  if (!format.empty()) {
    options.shortcuts = find_format(format);
    if (!options.shortcuts || !can_store(*options.shortcuts, true))
      return Error::user(fmt::format("shortcuts '{}': must be a format that GGUF files can have, such as f16", format));
    if (!options.each_block) return Error::user("shortcuts: belongs to rotations=blocks");
  }
  return std::unique_ptr<Pass>(std::make_unique<SliceGpt>(options));
}

}  // namespace millrace
