// list_tensors(): the tensors that a spec's model needs, by their canonical names.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "formats/format.h"
#include "models/convert/recurrent_tensors.h"
#include "models/convert/tensor_source.h"
#include "models/draft_heads/mtp_layer.h"
#include "models/mixers/mixer.h"
#include "models/weight_loader.h"

namespace millrace {
namespace {

// Looks up tensors by name; subclasses know the file kind's names and orientation.
class Lister {
 public:
  Lister(const ArchSpec& spec, const ArchSpec& target, bool from_gguf)
      : spec_(spec), target_(target), from_gguf_(from_gguf) {}
  virtual ~Lister() = default;

  Result<std::vector<SourceTensor>> list() {
    MILLRACE_TRY_VOID(add_matrix("token_embd.weight", spec_.vocab, spec_.width));
    if (spec_.learned_positions) MILLRACE_TRY_VOID(add_positions());
    if (const int64_t types = spec_.encoder ? stored_rows("token_types.weight") : 0; types > 0)
      MILLRACE_TRY_VOID(add_matrix("token_types.weight", types, spec_.width));
    MILLRACE_TRY_VOID(add_norm("token_embd_norm", spec_.embedding_norm));
    for (int64_t i = 0; i < spec_.layer_count(); ++i) MILLRACE_TRY_VOID(add_layer(i));
    MILLRACE_TRY_VOID(add_norm("output_norm", !spec_.sum_norm));
    if (spec_.encoder) return list_head();
    if (exists("output.weight")) MILLRACE_TRY_VOID(add_matrix("output.weight", spec_.vocab, spec_.width));
    MILLRACE_TRY_VOID(add_bias("output.bias", spec_.vocab));
    MILLRACE_TRY_VOID(add_prediction_layer());
    return std::move(out_);
  }

 protected:
  virtual bool exists(const std::string& name) const = 0;
  // Returns the rows of a matrix whose number the spec does not state; 0 if the matrix does not exist.
  virtual int64_t stored_rows(const std::string& name) const = 0;
  // Locates the values of a tensor whose name, rows and cols are set. `total_rows`: of the stored tensor.
  virtual Result<void> locate(SourceTensor& tensor, const std::string& name, int64_t total_rows) const = 0;

 private:
  Result<void> add(SourceTensor tensor, const std::string& stored_name, int64_t total_rows) {
    MILLRACE_TRY_VOID(locate(tensor, stored_name, total_rows));
    out_.push_back(std::move(tensor));
    return {};
  }

  // The head of a cross-encoder (models/ranking_head.h), if the file has one. Encoders have no other.
  Result<std::vector<SourceTensor>> list_head() {
    const int64_t labels = stored_rows("cls.output.weight");
    if (labels == 0) return std::move(out_);
    if (exists("cls.weight")) MILLRACE_TRY_VOID(add_matrix("cls.weight", spec_.width, spec_.width));
    MILLRACE_TRY_VOID(add_bias("cls.bias", spec_.width));
    if (exists("cls.norm.weight")) MILLRACE_TRY_VOID(add_vector("cls.norm.weight", spec_.width));
    MILLRACE_TRY_VOID(add_bias("cls.norm.bias", spec_.width));
    MILLRACE_TRY_VOID(add_matrix("cls.output.weight", labels, spec_.width));
    MILLRACE_TRY_VOID(add_bias("cls.output.bias", labels));
    return std::move(out_);
  }

  // Drops the rows before the first position if the output has none.
  Result<void> add_positions() {
    const char* const name = "position_embd.weight";
    SourceTensor tensor;
    tensor.name = name;
    tensor.rows = spec_.context;
    tensor.cols = spec_.width;
    tensor.first_row = spec_.first_position - target_.first_position;
    return add(std::move(tensor), name, spec_.first_position + spec_.context);
  }

  Result<void> add_matrix(const std::string& name, int64_t rows, int64_t cols) {
    SourceTensor tensor;
    tensor.name = name;
    tensor.rows = rows;
    tensor.cols = cols;
    set_pairs(tensor, name);
    return add(std::move(tensor), name, rows);
  }

  Result<void> add_vector(const std::string& name, int64_t n, float offset = 0.0f) {
    SourceTensor tensor;
    tensor.name = name;
    tensor.is_vector = true;
    tensor.offset = offset;
    set_pairs(tensor, name);
    const bool moves = tensor.pairs != SourceTensor::Pairs::keep;  // then values are moved one by one
    tensor.rows = moves ? n : 1;
    tensor.cols = moves ? 1 : n;
    return add(std::move(tensor), name, tensor.rows);
  }

  Result<void> add_bias(const std::string& name, int64_t n) {
    if (!exists(name)) return {};
    return add_vector(name, n);
  }

  Result<void> add_norm(const std::string& name, bool wanted) {
    if (!wanted) return {};
    MILLRACE_TRY_VOID(add_vector(name + ".weight", spec_.width, norm_offset()));
    return spec_.norm == NormKind::layer ? add_bias(name + ".bias", spec_.width) : Result<void>();
  }

  // Files that store w - 1 have an offset of 1.
  float norm_offset() const { return spec_.norm_offset - target_.norm_offset; }

  void set_pairs(SourceTensor& tensor, const std::string& name) const {
    const bool turns = name.find("attn_q.") != std::string::npos || name.find("attn_k.") != std::string::npos;
    if (!turns || spec_.rope_style == target_.rope_style || spec_.ropes.empty()) return;
    tensor.pairs =
        target_.rope_style == RopeStyle::half ? SourceTensor::Pairs::to_half : SourceTensor::Pairs::to_interleaved;
    tensor.head_dim = spec_.head_dim;
    tensor.rotated = spec_.ropes[0].rotated;
  }

  // The first layer that predicts further tokens (models/draft_heads/mtp_layer.h), which has the sizes of the model's
  // last layer with attention.
  Result<void> add_prediction_layer() {
    const std::string prefix = fmt::format("blk.{}.", spec_.layer_count()), own = prefix + "nextn.";
    const auto attends = [](const LayerSpec& layer) { return layer.mixers.front().mixer == &kAttentionMixer; };
    const auto sizes = std::find_if(spec_.layers.rbegin(), spec_.layers.rend(), attends);
    for (const char* name : {"eh_proj.weight", "enorm.weight", "hnorm.weight"})
      if (!exists(own + name) || sizes == spec_.layers.rend()) return {};
    MILLRACE_TRY_VOID(add_layer(prefix, *sizes, {}));
    MILLRACE_TRY_VOID(add_matrix(own + "eh_proj.weight", spec_.width, 2 * spec_.width));
    MILLRACE_TRY_VOID(add_norm(own + "enorm", true));
    MILLRACE_TRY_VOID(add_norm(own + "hnorm", true));
    return add_norm(own + "shared_head_norm", exists(own + "shared_head_norm.weight"));
  }

  Result<void> add_layer(int64_t index) {
    const auto at = static_cast<size_t>(index);
    return add_layer(fmt::format("blk.{}.", index), spec_.layers[at], target_.layers[at].ssm);
  }

  // `to`: sizes and order of recurrent heads as the output has them.
  Result<void> add_layer(const std::string& prefix, const LayerSpec& layer, const SsmSpec& to) {
    MILLRACE_TRY_VOID(add_norm(prefix + "attn_norm", spec_.pre_norm && layer.mixer_norm));
    MILLRACE_TRY_VOID(add_mixers(prefix, layer, to));
    if (!layer.mlp) return {};
    MILLRACE_TRY_VOID(add_norm(prefix + "post_attention_norm", spec_.post_norm));
    MILLRACE_TRY_VOID(add_norm(prefix + "attn_output_norm", spec_.sum_norm));
    MILLRACE_TRY_VOID(add_norm(prefix + "ffn_norm", spec_.pre_norm));
    if (layer.moe) {
      MILLRACE_TRY_VOID(add_experts(prefix));
    } else {
      MILLRACE_TRY_VOID(add_mlp(prefix));
    }
    MILLRACE_TRY_VOID(add_norm(prefix + "layer_output_norm", spec_.sum_norm));
    return add_norm(prefix + "post_ffw_norm", spec_.post_norm);
  }

  Result<void> add_mixers(const std::string& prefix, const LayerSpec& layer, const SsmSpec& to) {
    for (const LayerMixer& one : layer.mixers) {
      if (one.mixer == &kLatentMixer) {
        MILLRACE_TRY_VOID(add_latent_attention(prefix, layer));
      } else if (one.mixer == &kGatedDeltaNetMixer || one.mixer == &kMambaMixer || one.mixer == &kMamba2Mixer) {
        MILLRACE_TRY_VOID(add_recurrent(prefix, *one.mixer, layer.ssm, to));
      } else {
        MILLRACE_TRY_VOID(add_attention(prefix, layer.attention_gate));
      }
    }
    return {};
  }

  Result<void> add_recurrent(const std::string& prefix, const Mixer& mixer, SsmSpec from, const SsmSpec& to) {
    const bool fused = exists(prefix + "ssm_ba.weight");
    if (fused && from.tiled != to.tiled)
      return Error::unsupported(fmt::format("{}: fused rates in another order of heads", spec_.arch));
    if (&mixer == &kMamba2Mixer) {
      from.conv_bias = exists(prefix + "ssm_conv1d.bias");
      from.gated_norm = exists(prefix + "ssm_norm.weight");
    }
    std::vector<SourceTensor> tensors = &mixer == &kMambaMixer ? mamba_tensors(prefix, spec_.width, from, to)
                                        : &mixer == &kMamba2Mixer
                                            ? mamba2_tensors(prefix, spec_.width, from, to)
                                            : delta_net_tensors(prefix, spec_.width, from, to, fused);
    for (SourceTensor& tensor : tensors) {
      const std::string name = tensor.name;
      const int64_t rows = tensor.rows;
      if (tensor.values)
        out_.push_back(std::move(tensor));
      else
        MILLRACE_TRY_VOID(add(std::move(tensor), name, rows));
    }
    return {};
  }

  // models/mixers/latent.cc. A folder holds the matrices of each head's keys and values as one, kv_b; the output has
  // two stacks, of which the first is transposed.
  Result<void> add_latent_attention(const std::string& prefix, const LayerSpec& layer) {
    const LatentSpec& sizes = layer.latent;
    const int64_t queries = layer.heads * sizes.query();
    if (sizes.query_rank > 0) {
      MILLRACE_TRY_VOID(add_matrix(prefix + "attn_q_a.weight", sizes.query_rank, spec_.width));
      MILLRACE_TRY_VOID(add_vector(prefix + "attn_q_a_norm.weight", sizes.query_rank));
      MILLRACE_TRY_VOID(add_matrix(prefix + "attn_q_b.weight", queries, sizes.query_rank));
    } else {
      MILLRACE_TRY_VOID(add_matrix(prefix + "attn_q.weight", queries, spec_.width));
    }
    MILLRACE_TRY_VOID(add_matrix(prefix + "attn_kv_a_mqa.weight", sizes.rank + sizes.rotated, spec_.width));
    MILLRACE_TRY_VOID(add_vector(prefix + "attn_kv_a_norm.weight", sizes.rank));
    MILLRACE_TRY_VOID(add_latent_heads(prefix, layer));
    return add_matrix(prefix + "attn_output.weight", spec_.width, layer.heads * sizes.value);
  }

  Result<void> add_latent_heads(const std::string& prefix, const LayerSpec& layer) {
    const LatentSpec& sizes = layer.latent;
    const int64_t each = sizes.unrotated + sizes.value;
    if (from_gguf_) {
      if (exists(prefix + "attn_k_b.weight")) return join_latent_heads(prefix, layer);
      return add_matrix(prefix + "attn_kv_b.weight", layer.heads * each, sizes.rank);
    }
    MILLRACE_TRY(const SourceTensor both, stored_matrix(prefix + "attn_kv_b.weight", layer.heads * each, sizes.rank));
    for (int64_t head = 0; head < layer.heads; ++head)
      add_part(both, fmt::format("{}attn_k_b.{}.weight", prefix, head), head * each, sizes.rank, sizes.unrotated, true);
    for (int64_t head = 0; head < layer.heads; ++head)
      add_part(both, fmt::format("{}attn_v_b.{}.weight", prefix, head), head * each + sizes.unrotated, sizes.value,
               sizes.rank, false);
    return {};
  }

  // The rows of kv_b: of each head those of its keys and of its values, which a GGUF file holds in two stacks.
  Result<void> join_latent_heads(const std::string& prefix, const LayerSpec& layer) {
    const LatentSpec& sizes = layer.latent;
    MILLRACE_TRY(const SourceTensor keys,
                 stored_matrix(prefix + "attn_k_b.weight", layer.heads * sizes.rank, sizes.unrotated));
    MILLRACE_TRY(const SourceTensor values,
                 stored_matrix(prefix + "attn_v_b.weight", layer.heads * sizes.value, sizes.rank));
    for (int64_t head = 0; head < layer.heads; ++head) {
      const std::string begin = fmt::format("{}attn_kv_b.", prefix);
      add_part(keys, fmt::format("{}{}.weight", begin, 2 * head), head * sizes.rank, sizes.unrotated, sizes.rank, true);
      add_part(values, fmt::format("{}{}.weight", begin, 2 * head + 1), head * sizes.value, sizes.value, sizes.rank,
               false);
    }
    return {};
  }

  Result<SourceTensor> stored_matrix(const std::string& name, int64_t rows, int64_t cols) const {
    SourceTensor out;
    out.rows = rows;
    out.cols = cols;
    MILLRACE_TRY_VOID(locate(out, name, rows));
    if (out.transposed) return Error::unsupported(fmt::format("tensor {}: is stored transposed", out.stored->name));
    return out;
  }

  // Adds [rows, cols] of a stored matrix from its row `first` on; `transposed`: of cols rows with `rows` values each.
  void add_part(const SourceTensor& whole, std::string name, int64_t first, int64_t rows, int64_t cols,
                bool transposed) {
    SourceTensor part = whole;
    part.name = std::move(name);
    part.first_row = first;
    part.rows = rows;
    part.cols = cols;
    part.transposed = transposed;
    out_.push_back(std::move(part));
  }

  // `gated`: each head's query is followed by the gate of its output.
  Result<void> add_attention(const std::string& prefix, bool gated) {
    const int64_t q = spec_.heads * spec_.head_dim;
    const int64_t kv = spec_.kv_heads * spec_.head_dim;
    if (exists(prefix + "attn_qkv.weight")) {
      MILLRACE_TRY_VOID(add_matrix(prefix + "attn_qkv.weight", q + 2 * kv, spec_.width));
      MILLRACE_TRY_VOID(add_bias(prefix + "attn_qkv.bias", q + 2 * kv));
    } else {
      const std::pair<const char*, int64_t> parts[] = {{"attn_q", gated ? 2 * q : q}, {"attn_k", kv}, {"attn_v", kv}};
      for (const auto& [part, rows] : parts) {
        MILLRACE_TRY_VOID(add_matrix(prefix + part + ".weight", rows, spec_.width));
        MILLRACE_TRY_VOID(add_bias(prefix + part + ".bias", rows));
      }
    }
    if (spec_.qk_norm != QkNorm::none) {
      if (spec_.rope_style != target_.rope_style)
        return Error::unsupported(fmt::format("{}: norms of queries and keys in the other pair order", spec_.arch));
      const bool full = spec_.qk_norm == QkNorm::full;
      MILLRACE_TRY_VOID(add_vector(prefix + "attn_q_norm.weight", full ? q : spec_.head_dim, norm_offset()));
      MILLRACE_TRY_VOID(add_vector(prefix + "attn_k_norm.weight", full ? kv : spec_.head_dim, norm_offset()));
    }
    MILLRACE_TRY_VOID(add_matrix(prefix + "attn_output.weight", spec_.width, q));
    MILLRACE_TRY_VOID(add_bias(prefix + "attn_output.bias", spec_.width));
    if (spec_.attention_sinks) MILLRACE_TRY_VOID(add_vector(prefix + "attn_sinks.weight", spec_.heads));
    return add_gates(prefix);
  }

  // models/token_gates.h
  Result<void> add_gates(const std::string& prefix) {
    for (const char* name : {"attn_int_q.weight", "attn_int_k.weight", "attn_select.weight"})
      if (const int64_t rows = stored_rows(prefix + name); rows > 0)
        MILLRACE_TRY_VOID(add_matrix(prefix + name, rows, spec_.width));
    MILLRACE_TRY_VOID(add_bias(prefix + "attn_int.bias", 1));
    MILLRACE_TRY_VOID(add_bias(prefix + "attn_select.bias", 2));
    return add_bias(prefix + "attn_select.temperature", 1);
  }

  Result<void> add_mlp(const std::string& prefix) {
    const bool fused = spec_.gated && !exists(prefix + "ffn_gate.weight");
    if (spec_.gated && !fused) {
      MILLRACE_TRY_VOID(add_matrix(prefix + "ffn_gate.weight", spec_.hidden, spec_.width));
      MILLRACE_TRY_VOID(add_bias(prefix + "ffn_gate.bias", spec_.hidden));
    }
    MILLRACE_TRY_VOID(add_matrix(prefix + "ffn_up.weight", fused ? 2 * spec_.hidden : spec_.hidden, spec_.width));
    MILLRACE_TRY_VOID(add_bias(prefix + "ffn_up.bias", spec_.hidden));
    MILLRACE_TRY_VOID(add_matrix(prefix + "ffn_down.weight", spec_.width, spec_.hidden));
    return add_bias(prefix + "ffn_down.bias", spec_.width);
  }

  // [experts, n]
  Result<void> add_expert_biases(const std::string& name, int64_t experts, int64_t n) {
    if (!exists(name)) return {};
    SourceTensor tensor;
    tensor.name = name;
    tensor.is_vector = true;
    tensor.rows = experts;
    tensor.cols = n;
    return add(std::move(tensor), name, experts);
  }

  // Lists the down matrices of experts that are stored as one tensor [experts, hidden, width].
  Result<void> add_transposed_experts(const std::string& prefix) {
    const MoeSpec& moe = spec_.moe;
    SourceTensor tensor;
    tensor.rows = moe.hidden;
    tensor.cols = spec_.width;
    MILLRACE_TRY_VOID(locate(tensor, prefix + "ffn_down_exps.transposed", moe.experts * moe.hidden));
    std::swap(tensor.rows, tensor.cols);
    tensor.transposed = true;
    for (int64_t e = 0; e < moe.experts; ++e) {
      tensor.name = fmt::format("{}ffn_down.{}.weight", prefix, e);
      tensor.first_row = e * moe.hidden;
      out_.push_back(tensor);
    }
    return {};
  }

  Result<void> add_experts(const std::string& prefix) {
    const MoeSpec& moe = spec_.moe;
    MILLRACE_TRY_VOID(add_matrix(prefix + "ffn_gate_inp.weight", moe.experts, spec_.width));
    MILLRACE_TRY_VOID(add_bias(prefix + "ffn_gate_inp.bias", moe.experts));
    MILLRACE_TRY_VOID(add_bias(prefix + "exp_probs_b.bias", moe.experts));
    for (const char* part : {"ffn_gate", "ffn_up", "ffn_down"}) {
      const bool down = part == std::string_view("ffn_down");
      if (!spec_.gated && part == std::string_view("ffn_gate")) continue;
      if (down && exists(prefix + "ffn_down_exps.transposed")) {
        MILLRACE_TRY_VOID(add_transposed_experts(prefix));
        continue;
      }
      SourceTensor tensor;
      tensor.rows = down ? spec_.width : moe.hidden;
      tensor.cols = down ? moe.hidden : spec_.width;
      // One tensor may hold all experts, and of each the gate and then the up matrix.
      const bool both = !down && exists(prefix + "ffn_gate_up_exps.weight");
      const std::string stacked = prefix + (both ? "ffn_gate_up" : part) + "_exps.weight";
      const bool one = exists(stacked);
      const int64_t stride = both ? 2 * tensor.rows : tensor.rows;
      const int64_t skipped = both && part == std::string_view("ffn_up") ? tensor.rows : 0;
      for (int64_t e = 0; e < moe.experts; ++e) {
        tensor.name = fmt::format("{}{}.{}.weight", prefix, part, e);
        tensor.first_row = one ? e * stride + skipped : 0;
        MILLRACE_TRY_VOID(add(tensor, one ? stacked : tensor.name, one ? moe.experts * stride : tensor.rows));
      }
      MILLRACE_TRY_VOID(add_expert_biases(prefix + part + "_exps.bias", moe.experts, tensor.rows));
    }
    if (moe.shared_hidden == 0) return add_bias(prefix + "ffn_down_shexp.bias", spec_.width);
    MILLRACE_TRY_VOID(add_matrix(prefix + "ffn_gate_shexp.weight", moe.shared_hidden, spec_.width));
    MILLRACE_TRY_VOID(add_matrix(prefix + "ffn_up_shexp.weight", moe.shared_hidden, spec_.width));
    MILLRACE_TRY_VOID(add_matrix(prefix + "ffn_down_shexp.weight", spec_.width, moe.shared_hidden));
    return moe.shared_gate ? add_matrix(prefix + "ffn_gate_inp_shexp.weight", 1, spec_.width) : Result<void>();
  }

  const ArchSpec& spec_;
  const ArchSpec& target_;
  bool from_gguf_;
  std::vector<SourceTensor> out_;
};

class FileLister final : public Lister {
 public:
  FileLister(const ModelFiles& files, const Arch& arch, const ArchSpec& spec, const ArchSpec& target)
      : Lister(spec, target, files.kind == ModelFiles::Kind::gguf),
        files_(files),
        loader_(files, arch),
        predictions_(files, kQwenMtpParts),
        prediction_layer_(files, arch),
        behind_(fmt::format("blk.{}.", spec.layer_count())) {
    prediction_layer_.replace_prefix(fmt::format("model.layers.{}.", spec.layer_count()), "mtp.layers.0.");
  }

 protected:
  bool exists(const std::string& name) const override { return find(name) != nullptr; }
  int64_t stored_rows(const std::string& name) const override {
    const StoredTensor* stored = find(name);
    return stored ? stored->tensor.rows() : 0;
  }

  Result<void> locate(SourceTensor& tensor, const std::string& name, int64_t total_rows) const override {
    const StoredTensor* stored = find(name, &tensor.transposed);
    if (!stored) return Error::corrupt(fmt::format("{}: tensor {} is missing", files_.path, name));
    const Tensor& data = stored->tensor;
    if (!data.format) {
      return Error::unsupported(fmt::format("{}: tensor {} has type {}", files_.path, stored->name, stored->type_name));
    }
    int64_t rows = data.rows(), cols = data.cols();
    if (tensor.transposed) std::swap(rows, cols);
    if (tensor.is_vector && data.values() == total_rows * tensor.cols) {
      rows = total_rows;
      cols = tensor.cols;
    }
    if (rows != total_rows || cols != tensor.cols || data.cols() % data.format->block_values != 0) {
      return Error::corrupt(fmt::format("{}: tensor {} at offset {} has {} x {} values, the model needs {} x {}",
                                        files_.path, stored->name, stored->offset, rows, cols, total_rows,
                                        tensor.cols));
    }
    if (tensor.is_vector && tensor.cols == 1 && data.format->block_values != 1)
      return Error::unsupported(
          fmt::format("{}: tensor {} is a vector in {}", files_.path, stored->name, data.format->name));
    tensor.files = &files_;
    tensor.stored = stored;
    return {};
  }

 private:
  const StoredTensor* find(const std::string& name, bool* transposed = nullptr) const {
    if (!name.starts_with(behind_)) return loader_.find(name, transposed);
    return (name.find(".nextn.") != std::string::npos ? predictions_ : prediction_layer_).find(name, transposed);
  }

  const ModelFiles& files_;
  WeightLoader loader_;
  // Loaders of the layer that predicts further tokens in folders of Qwen: of its own tensors, and of those that any
  // layer has.
  WeightLoader predictions_, prediction_layer_;
  std::string behind_;  // the beginning of that layer's names
};

class CheckpointLister final : public Lister {
 public:
  CheckpointLister(const Llama2cCheckpoint& checkpoint, const ArchSpec& spec, const ArchSpec& target)
      : Lister(spec, target, false), checkpoint_(checkpoint) {}

 protected:
  bool exists(const std::string& name) const override { return checkpoint_.find(name) != nullptr; }
  int64_t stored_rows(const std::string&) const override { return 0; }

  Result<void> locate(SourceTensor& tensor, const std::string& name, int64_t total_rows) const override {
    const Llama2cTensor* found = checkpoint_.find(name);
    if (!found || found->count() != total_rows * tensor.cols) {
      return Error::corrupt(
          fmt::format("{}: tensor {} is missing or has another size", checkpoint_.file->path(), name));
    }
    tensor.grouped = found;
    return {};
  }

 private:
  const Llama2cCheckpoint& checkpoint_;
};

}  // namespace

Result<std::vector<SourceTensor>> list_tensors(const ModelFiles& files, const Arch& arch, const ArchSpec& spec,
                                               const ArchSpec& target) {
  return FileLister(files, arch, spec, target).list();
}

Result<std::vector<SourceTensor>> list_tensors(const Llama2cCheckpoint& checkpoint, const ArchSpec& spec,
                                               const ArchSpec& target) {
  return CheckpointLister(checkpoint, spec, target).list();
}

}  // namespace millrace
