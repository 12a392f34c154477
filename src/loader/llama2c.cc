#include "loader/llama2c.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "loader/byte_reader.h"
#include "loader/tensor_ranges.h"
#include "text/tokenizer_files.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kMagic = 0x616b3432;
constexpr uint64_t kHeaderBytesV2 = 256;
// Far above any checkpoint of this kind, and small enough that products of four of them fit in 128 bits.
constexpr int32_t kMaxSize = 1 << 24;

constexpr int32_t kMaxLayers = 4096;

struct Sizes {
  int32_t dim, ffn, layers, heads, kv_heads, vocab, context;
};

// Takes consecutive tensors from the file.
class TensorCutter {
 public:
  TensorCutter(Llama2cCheckpoint& checkpoint, std::span<const uint8_t> image, uint64_t start)
      : checkpoint_(checkpoint), reader_(image, start) {}

  uint64_t position() const { return reader_.position(); }
  uint64_t left() const { return reader_.left(); }

  Result<void> floats(std::string name, std::vector<int64_t> dims) {
    Llama2cTensor tensor{std::move(name), std::move(dims)};
    MILLRACE_TRY(int64_t count, checked_count(tensor));
    MILLRACE_TRY(tensor.values, take(tensor, count, sizeof(float)));
    MILLRACE_TRY_VOID(check_finite(tensor, tensor.values, count));
    checkpoint_.tensors.push_back(std::move(tensor));
    return {};
  }

  Result<void> grouped(std::string name, std::vector<int64_t> dims, int64_t group) {
    Llama2cTensor tensor{std::move(name), std::move(dims)};
    MILLRACE_TRY(int64_t count, checked_count(tensor));
    if (count % group != 0) return error(tensor, fmt::format("{} values are not whole groups of {}", count, group));
    tensor.group = group;
    MILLRACE_TRY(tensor.values, take(tensor, count, 1));
    MILLRACE_TRY(tensor.scales, take(tensor, count / group, sizeof(float)));
    MILLRACE_TRY_VOID(check_finite(tensor, tensor.scales, count / group));
    checkpoint_.tensors.push_back(std::move(tensor));
    return {};
  }

  Result<void> skip_floats(int64_t count) {
    Llama2cTensor tensor{"(RoPE tables)", {}};
    MILLRACE_TRY([[maybe_unused]] const uint8_t* skipped, take(tensor, count, sizeof(float)));
    return {};
  }

 private:
  Error error(const Llama2cTensor& tensor, const std::string& what) const {
    return Error::corrupt(fmt::format("{}: tensor '{}' at offset {}: {}", checkpoint_.file->path(), tensor.name,
                                      reader_.position(), what));
  }

  Result<int64_t> checked_count(const Llama2cTensor& tensor) const {
    int64_t count = 1;
    for (int64_t dim : tensor.dims) {
      if (!multiply_checked(count, dim, count)) return error(tensor, "its dimensions multiply to more than 2^63");
    }
    return count;
  }

  Result<const uint8_t*> take(const Llama2cTensor& tensor, int64_t count, size_t bytes) {
    std::span<const uint8_t> view;
    auto values = static_cast<uint64_t>(count);
    if (values > reader_.left() / bytes || !reader_.take(values * bytes, view)) {
      return error(tensor,
                   fmt::format("its {} values extend past the end of the file; the file is truncated or of another "
                               "kind",
                               count));
    }
    return view.data();
  }

  Result<void> check_finite(const Llama2cTensor& tensor, const uint8_t* floats, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) {
      float value;
      std::memcpy(&value, floats + i * static_cast<int64_t>(sizeof(value)), sizeof(value));
      if (!std::isfinite(value)) return error(tensor, fmt::format("number {} is not finite (NaN or infinite)", i));
    }
    return {};
  }

  Llama2cCheckpoint& checkpoint_;
  ByteReader reader_;
};

std::string layer_name(int64_t layer, const char* part) { return fmt::format("blk.{}.{}.weight", layer, part); }

// A matrix of each layer, by its GGUF name.
struct LayerMatrix {
  const char* name;
  int64_t rows, cols;
};

std::vector<LayerMatrix> attention_matrices(const Llama2cCheckpoint& c) {
  int64_t kv = c.kv_heads * c.head_dim();
  return {{"attn_q", c.dim, c.dim}, {"attn_k", kv, c.dim}, {"attn_v", kv, c.dim}, {"attn_output", c.dim, c.dim}};
}
std::vector<LayerMatrix> mlp_matrices(const Llama2cCheckpoint& c) {
  return {{"ffn_gate", c.ffn, c.dim}, {"ffn_down", c.dim, c.ffn}, {"ffn_up", c.ffn, c.dim}};
}

Result<void> cut_norms(TensorCutter& cutter, const Llama2cCheckpoint& c, const char* name) {
  for (int64_t layer = 0; layer < c.layers; ++layer) MILLRACE_TRY_VOID(cutter.floats(layer_name(layer, name), {c.dim}));
  return {};
}

Result<void> cut_v0(Llama2cCheckpoint& c, std::span<const uint8_t> image) {
  TensorCutter cutter(c, image, sizeof(Sizes));
  auto matrices = [&](const std::vector<LayerMatrix>& list) -> Result<void> {
    for (const LayerMatrix& matrix : list) {
      for (int64_t layer = 0; layer < c.layers; ++layer) {
        MILLRACE_TRY_VOID(cutter.floats(layer_name(layer, matrix.name), {matrix.rows, matrix.cols}));
      }
    }
    return {};
  };
  MILLRACE_TRY_VOID(cutter.floats("token_embd.weight", {c.vocab, c.dim}));
  MILLRACE_TRY_VOID(cut_norms(cutter, c, "attn_norm"));
  MILLRACE_TRY_VOID(matrices(attention_matrices(c)));
  MILLRACE_TRY_VOID(cut_norms(cutter, c, "ffn_norm"));
  MILLRACE_TRY_VOID(matrices(mlp_matrices(c)));
  MILLRACE_TRY_VOID(cutter.floats("output_norm.weight", {c.dim}));
  MILLRACE_TRY_VOID(cutter.skip_floats(2 * c.context * (c.head_dim() / 2)));
  if (!c.shared_head) MILLRACE_TRY_VOID(cutter.floats("output.weight", {c.vocab, c.dim}));
  if (cutter.left() != 0) {
    return Error::corrupt(
        fmt::format("{}: {} bytes remain after the last tensor, at offset {}; not a llama2.c checkpoint",
                    c.file->path(), cutter.left(), cutter.position()));
  }
  return {};
}

Result<void> cut_v2(Llama2cCheckpoint& c, std::span<const uint8_t> image, int64_t group) {
  TensorCutter cutter(c, image, kHeaderBytesV2);
  MILLRACE_TRY_VOID(cut_norms(cutter, c, "attn_norm"));
  MILLRACE_TRY_VOID(cut_norms(cutter, c, "ffn_norm"));
  MILLRACE_TRY_VOID(cutter.floats("output_norm.weight", {c.dim}));
  MILLRACE_TRY_VOID(cutter.grouped("token_embd.weight", {c.vocab, c.dim}, group));
  std::vector<LayerMatrix> matrices = attention_matrices(c);
  for (const LayerMatrix& matrix : mlp_matrices(c)) matrices.push_back(matrix);
  for (const LayerMatrix& matrix : matrices) {
    for (int64_t layer = 0; layer < c.layers; ++layer) {
      MILLRACE_TRY_VOID(cutter.grouped(layer_name(layer, matrix.name), {matrix.rows, matrix.cols}, group));
    }
  }
  if (!c.shared_head) MILLRACE_TRY_VOID(cutter.grouped("output.weight", {c.vocab, c.dim}, group));
  if (cutter.left() != 0) {
    return Error::corrupt(
        fmt::format("{}: {} bytes remain after the last tensor, at offset {}; not a llama2.c checkpoint",
                    c.file->path(), cutter.left(), cutter.position()));
  }
  return {};
}

Result<void> take_sizes(Llama2cCheckpoint& c, const Sizes& sizes) {
  const std::pair<const char*, int32_t> named[] = {
      {"dim", sizes.dim},        {"hidden_dim", sizes.ffn},      {"n_layers", sizes.layers},
      {"n_heads", sizes.heads},  {"n_kv_heads", sizes.kv_heads}, {"vocab_size", sizes.vocab},
      {"seq_len", sizes.context}};
  for (const auto& [name, value] : named) {
    if (value < 1 || value > kMaxSize) {
      return Error::corrupt(fmt::format("{}: header: {} is {}; 1 to {} are allowed. Is it a llama2.c checkpoint?",
                                        c.file->path(), name, value, kMaxSize));
    }
  }
  if (sizes.layers > kMaxLayers) {
    return Error::corrupt(
        fmt::format("{}: header: n_layers is {}; 1 to {} are allowed", c.file->path(), sizes.layers, kMaxLayers));
  }
  if (sizes.dim % sizes.heads != 0 || sizes.heads % sizes.kv_heads != 0 || (sizes.dim / sizes.heads) % 2 != 0) {
    return Error::corrupt(fmt::format("{}: header: dim {}, n_heads {} and n_kv_heads {} do not divide evenly",
                                      c.file->path(), sizes.dim, sizes.heads, sizes.kv_heads));
  }
  c.dim = sizes.dim;
  c.ffn = sizes.ffn;
  c.layers = sizes.layers;
  c.heads = sizes.heads;
  c.kv_heads = sizes.kv_heads;
  c.vocab = sizes.vocab;
  c.context = sizes.context;
  return {};
}

bool read_sizes(ByteReader& reader, Sizes& sizes) {
  return reader.read(sizes.dim) && reader.read(sizes.ffn) && reader.read(sizes.layers) && reader.read(sizes.heads) &&
         reader.read(sizes.kv_heads) && reader.read(sizes.vocab) && reader.read(sizes.context);
}

}  // namespace

int64_t Llama2cTensor::count() const {
  int64_t count = 1;
  for (int64_t dim : dims) count *= dim;
  return count;
}

void Llama2cTensor::decode(float* out) const {
  int64_t n = count();
  if (group == 0) {
    std::memcpy(out, values, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  for (int64_t begin = 0; begin < n; begin += group) {
    float scale;
    std::memcpy(&scale, scales + begin / group * static_cast<int64_t>(sizeof(scale)), sizeof(scale));
    for (int64_t i = begin; i < begin + group; ++i) out[i] = static_cast<float>(static_cast<int8_t>(values[i])) * scale;
  }
}

const Llama2cTensor* Llama2cCheckpoint::find(std::string_view name) const {
  auto found = std::find_if(tensors.begin(), tensors.end(), [&](const Llama2cTensor& t) { return t.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

Result<Llama2cCheckpoint> read_llama2c(const std::string& path) {
  Llama2cCheckpoint checkpoint;
  MILLRACE_TRY(checkpoint.file, MappedFile::open(path));
  std::span<const uint8_t> image = checkpoint.file->bytes();
  auto ends_early = [&] { return Error::corrupt(fmt::format("{}: file ends inside its header", path)); };
  Sizes sizes{};
  uint32_t magic = 0;
  if (!ByteReader(image).read(magic)) return ends_early();
  if (magic != kMagic) {
    ByteReader reader(image);
    if (!read_sizes(reader, sizes)) return ends_early();
    checkpoint.shared_head = sizes.vocab > 0;
    if (sizes.vocab < 0 && sizes.vocab != INT32_MIN) sizes.vocab = -sizes.vocab;
    MILLRACE_TRY_VOID(take_sizes(checkpoint, sizes));
    MILLRACE_TRY_VOID(cut_v0(checkpoint, image));
    return checkpoint;
  }
  ByteReader reader(image, sizeof(magic));
  int32_t version = 0, group = 0;
  uint8_t shared = 0;
  if (!reader.read(version)) return ends_early();
  if (version != 2) {
    return Error::unsupported(
        fmt::format("{}: llama2.c version {} is not supported; supported: 0 and 2", path, version));
  }
  if (!read_sizes(reader, sizes) || !reader.read(shared) || !reader.read(group) || image.size() < kHeaderBytesV2) {
    return ends_early();
  }
  if (shared > 1) return Error::corrupt(fmt::format("{}: header: shared head is {}, neither 0 nor 1", path, shared));
  if (group < 1 || group > kMaxSize) {
    return Error::corrupt(fmt::format("{}: header: group size is {}; 1 to {} are allowed", path, group, kMaxSize));
  }
  checkpoint.version = 2;
  checkpoint.shared_head = shared == 1;
  MILLRACE_TRY_VOID(take_sizes(checkpoint, sizes));
  MILLRACE_TRY_VOID(cut_v2(checkpoint, image, group));
  return checkpoint;
}

Result<std::optional<TokenizerSpec>> read_llama2c_tokenizer_file(const std::string& path,
                                                                 const std::string& checkpoint_path, int64_t vocab) {
  std::string chosen = path;
  if (chosen.empty()) {
    fs::path folder = fs::path(checkpoint_path).parent_path();
    std::error_code ignored;
    for (const std::string& name : {std::string("tokenizer.bin"), fmt::format("tok{}.bin", vocab)}) {
      if (chosen.empty() && fs::is_regular_file(folder / name, ignored)) chosen = folder / name;
    }
    if (chosen.empty()) return std::optional<TokenizerSpec>();
  }
  MILLRACE_TRY(std::shared_ptr<const MappedFile> file, MappedFile::open(chosen));
  std::string_view bytes(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  auto spec = read_llama2c_tokenizer(bytes, static_cast<int32_t>(vocab));
  if (!spec.ok()) {
    Error error = std::move(spec).error();
    error.message = fmt::format("{}: {}", chosen, error.message);
    return error;
  }
  return std::optional(std::move(*spec));
}

}  // namespace millrace
