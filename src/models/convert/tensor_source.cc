#include "models/convert/tensor_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "formats/format.h"
#include "formats/weighted_rounding.h"
#include "models/weight_loader.h"

namespace millrace {
namespace {

constexpr int64_t kChunkValues = 1 << 16;  // decoded per step and thread

// Looks up tensors by name; subclasses know the file kind's names and orientation.
class Lister {
 public:
  Lister(const ArchSpec& spec, const ArchSpec& target) : spec_(spec), target_(target) {}
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

  Result<void> add_layer(int64_t index) {
    const std::string prefix = fmt::format("blk.{}.", index);
    const LayerSpec& layer = spec_.layers[static_cast<size_t>(index)];
    MILLRACE_TRY_VOID(add_norm(prefix + "attn_norm", spec_.pre_norm && layer.mixer_norm));
    MILLRACE_TRY_VOID(add_attention(prefix));
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

  Result<void> add_attention(const std::string& prefix) {
    const int64_t q = spec_.heads * spec_.head_dim;
    const int64_t kv = spec_.kv_heads * spec_.head_dim;
    if (exists(prefix + "attn_qkv.weight")) {
      MILLRACE_TRY_VOID(add_matrix(prefix + "attn_qkv.weight", q + 2 * kv, spec_.width));
      MILLRACE_TRY_VOID(add_bias(prefix + "attn_qkv.bias", q + 2 * kv));
    } else {
      const std::pair<const char*, int64_t> parts[] = {{"attn_q", q}, {"attn_k", kv}, {"attn_v", kv}};
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
      const std::string stacked = prefix + part + "_exps.weight";
      const bool one = exists(stacked);
      for (int64_t e = 0; e < moe.experts; ++e) {
        tensor.name = fmt::format("{}{}.{}.weight", prefix, part, e);
        tensor.first_row = one ? e * tensor.rows : 0;
        MILLRACE_TRY_VOID(add(tensor, one ? stacked : tensor.name, one ? moe.experts * tensor.rows : tensor.rows));
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
  std::vector<SourceTensor> out_;
};

class FileLister final : public Lister {
 public:
  FileLister(const ModelFiles& files, const Arch& arch, const ArchSpec& spec, const ArchSpec& target)
      : Lister(spec, target), files_(files), loader_(files, arch) {}

 protected:
  bool exists(const std::string& name) const override { return loader_.find(name) != nullptr; }
  int64_t stored_rows(const std::string& name) const override {
    const StoredTensor* stored = loader_.find(name);
    return stored ? stored->tensor.rows() : 0;
  }

  Result<void> locate(SourceTensor& tensor, const std::string& name, int64_t total_rows) const override {
    const StoredTensor* stored = loader_.find(name, &tensor.transposed);
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
  const ModelFiles& files_;
  WeightLoader loader_;
};

class CheckpointLister final : public Lister {
 public:
  CheckpointLister(const Llama2cCheckpoint& checkpoint, const ArchSpec& spec, const ArchSpec& target)
      : Lister(spec, target), checkpoint_(checkpoint) {}

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

// Values [begin, begin + count) of a llama2.c tensor.
void decode_grouped(const Llama2cTensor& tensor, int64_t begin, int64_t count, float* out) {
  if (tensor.group == 0) {
    std::memcpy(out, tensor.values + begin * 4, static_cast<size_t>(count) * 4);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    float scale;
    std::memcpy(&scale, tensor.scales + (begin + i) / tensor.group * 4, sizeof(scale));
    out[i] = static_cast<float>(static_cast<int8_t>(tensor.values[begin + i])) * scale;
  }
}

void apply_scales(const BlockScales& scales, int64_t row, int64_t cols, float* values) {
  if (scales.values.empty()) return;
  const int64_t across = (cols - 1) / scales.block_cols + 1;
  const float* line = scales.values.data() + row / scales.block_rows * across;
  for (int64_t c = 0; c < cols; ++c) values[c] *= line[c / scales.block_cols];
}

}  // namespace

const Format* SourceTensor::plain_format() const {
  const bool plain = stored && !transposed && offset == 0.0f && stored->scales.values.empty();
  return plain ? stored->tensor.format : nullptr;
}

const Format* SourceTensor::block_format() const {
  const bool scaled = stored && !stored->scales.values.empty() && stored->tensor.format->matrix_limit > 0;
  return scaled && !transposed && offset == 0.0f ? stored->tensor.format : plain_format();
}

float SourceTensor::matrix_scale(int64_t row) const {
  if (!stored || stored->scales.values.empty() || stored->tensor.format->matrix_limit == 0) return 1;
  return stored->scales.values[static_cast<size_t>((first_row + row) / stored->scales.block_rows)];
}

int64_t SourceTensor::source_row(int64_t row) const {
  if (pairs == Pairs::keep) return row;
  const int64_t in_head = row % head_dim;
  if (in_head >= rotated) return row;
  const int64_t half = rotated / 2;
  const int64_t from = pairs == Pairs::to_interleaved
                           ? (in_head % 2) * half + in_head / 2    // 2i, 2i + 1 <- i, i + half
                           : in_head % half * 2 + in_head / half;  // i, i + half <- 2i, 2i + 1
  return row - in_head + from;
}

void SourceTensor::read_rows(int64_t begin, int64_t count, float* out) const {
  if (transposed) {  // a line of the file is a column here
    const Format& format = *stored->tensor.format;
    std::vector<float> line(static_cast<size_t>(rows));
    for (int64_t c = 0; c < cols; ++c) {
      format.decode(stored->tensor.data + (first_row + c) * format.row_bytes(rows), line.data(), rows);
      for (int64_t r = 0; r < count; ++r) out[r * cols + c] = line[static_cast<size_t>(source_row(begin + r))] + offset;
    }
    return;
  }
  for (int64_t r = 0; r < count; ++r) {
    const int64_t row = source_row(begin + r);
    float* to = out + r * cols;
    if (values) {
      std::copy_n(values->data() + (first_row + row) * cols, cols, to);
    } else if (grouped) {
      decode_grouped(*grouped, (first_row + row) * cols, cols, to);
    } else {
      const Format& format = *stored->tensor.format;
      format.decode(stored->tensor.data + (first_row + row) * format.row_bytes(cols), to, cols);
      apply_scales(stored->scales, first_row + row, cols, to);
    }
    if (offset != 0.0f)
      for (int64_t c = 0; c < cols; ++c) to[c] += offset;
  }
}

Result<void> SourceTensor::check_finite() const {
  // llama2.c files were checked at loading. A stack is checked with its first expert; positions may begin behind rows
  // that are dropped.
  if (stored && first_row < (transposed ? cols : rows)) return check_tensor_finite(*files, *stored);
  return {};
}

// Reports a value that the source can represent and the new format cannot.
Result<void> OutputTensor::check_overflow(const uint8_t* encoded) const {
  if (!format->find_non_finite || parts.front().plain_format() == format) return {};
  const int64_t values = bytes() / format->block_bytes * format->block_values;
  if (format->find_non_finite(encoded, values) < 0) return {};
  return Error::unsupported(
      fmt::format("tensor {}: a value is too large for {}; choose bf16 or f32", name, format->name));
}

int64_t OutputTensor::bytes() const {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < dims.size(); ++i) rows *= dims[i];
  return rows * format->row_bytes(dims.back());
}

float OutputTensor::scale_of(int64_t index) const {
  return scales.empty() ? 1.0f : scales[static_cast<size_t>(index / dims[dims.size() - 2])];
}

bool OutputTensor::copies(const SourceTensor& part, int64_t before) const {
  if (part.block_format() != format) return false;
  for (int64_t row = 0; row < part.rows && format->matrix_limit > 0; ++row)
    if (part.matrix_scale(row) != scale_of(before + row)) return false;
  return true;
}

void OutputTensor::encode_row(int64_t index, const float* values, int64_t cols, uint8_t* destination) const {
  if (weights.empty()) return format->encode(values, destination, cols);
  const int64_t expert = dims.size() > 2 ? index / dims[dims.size() - 2] : 0;
  encode_weighted(*format, values, weights.data() + expert * cols, destination, cols);
}

Result<void> OutputTensor::produce(uint8_t* destination, ThreadPool& pool) const {
  for (const SourceTensor& part : parts) MILLRACE_TRY_VOID(part.check_finite());
  if (transpose) {
    const SourceTensor& part = parts.front();
    std::vector<float> all(static_cast<size_t>(part.rows * part.cols));
    part.read_rows(0, part.rows, all.data());
    pool.parallel_for(part.cols, [&](int64_t c, int) {
      std::vector<float> line(static_cast<size_t>(part.rows));
      for (int64_t r = 0; r < part.rows; ++r)
        line[static_cast<size_t>(r)] = all[static_cast<size_t>(r * part.cols + c)];
      format->encode(line.data(), destination + c * format->row_bytes(part.rows), part.rows);
    });
    return check_overflow(destination);
  }
  uint8_t* const whole = destination;
  int64_t before = 0;  // rows of earlier parts
  for (const SourceTensor& part : parts) {
    const int64_t row_bytes = format->row_bytes(part.cols);
    const int64_t chunk = part.transposed ? part.rows : std::max<int64_t>(1, kChunkValues / part.cols);
    const bool copy = copies(part, before);
    pool.parallel_for((part.rows + chunk - 1) / chunk, [&](int64_t i, int) {
      const int64_t begin = i * chunk, count = std::min(chunk, part.rows - begin);
      if (copy) {
        for (int64_t r = begin; r < begin + count; ++r) {
          const int64_t from = part.first_row + part.source_row(r);
          std::memcpy(destination + r * row_bytes, part.stored->tensor.data + from * row_bytes,
                      static_cast<size_t>(row_bytes));
        }
        return;
      }
      std::vector<float> rows(static_cast<size_t>(count * part.cols));
      part.read_rows(begin, count, rows.data());
      for (int64_t r = 0; r < count && !scales.empty(); ++r)
        for (int64_t c = 0; c < part.cols; ++c) rows[r * part.cols + c] /= scale_of(before + begin + r);
      for (int64_t r = 0; r < count; ++r)
        encode_row(before + begin + r, rows.data() + r * part.cols, part.cols, destination + (begin + r) * row_bytes);
    });
    destination += part.rows * row_bytes;
    before += part.rows;
  }
  return check_overflow(whole);
}

Result<std::vector<SourceTensor>> list_tensors(const ModelFiles& files, const Arch& arch, const ArchSpec& spec,
                                               const ArchSpec& target) {
  return FileLister(files, arch, spec, target).list();
}

Result<std::vector<SourceTensor>> list_tensors(const Llama2cCheckpoint& checkpoint, const ArchSpec& spec,
                                               const ArchSpec& target) {
  return CheckpointLister(checkpoint, spec, target).list();
}

}  // namespace millrace
