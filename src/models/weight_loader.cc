#include "models/weight_loader.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/codebook_products.h"
#include "models/unknown/tensor_kinds.h"

namespace millrace {
namespace {

constexpr int64_t kMaxListedValues = 1 << 24;
constexpr size_t kMaxRequests = 1 << 16;

// Variants of a name with the prefixes that checkpoints add or omit.
std::vector<std::string> spellings(const std::string& name) {
  std::vector<std::string> out = {name, "language_model." + name};
  if (name.ends_with(".weight"))  // torch's parametrizations, such as adapters next to a matrix
    out.push_back(name.substr(0, name.size() - 7) + ".parametrizations.weight.original");
  if (name.starts_with("mtp.")) out.push_back("model." + name);
  for (std::string_view prefix : {"model.", "transformer.", "bert.", "roberta."}) {
    if (!name.starts_with(prefix)) continue;
    std::string rest = name.substr(prefix.size());
    out.push_back(rest);
    if (prefix == "model.") out.push_back("model.language_model." + rest);
  }
  return out;
}

Error wrong_shape(const ModelFiles& files, const StoredTensor& stored, int64_t rows, int64_t cols) {
  return Error::corrupt(fmt::format("{}: tensor {} at offset {} has shape {}, the model needs [{}, {}]", files.path,
                                    stored.name, stored.offset, shape_text(stored.tensor), rows, cols));
}

Result<void> check_format(const ModelFiles& files, const StoredTensor& stored) {
  if (stored.tensor.format) return {};
  return Error::unsupported(fmt::format("{}: tensor {} has type {}", files.path, stored.name, stored.type_name));
}

// Of rows [begin, begin + rows), where a block begins at `begin`.
BlockScales scales_of(const BlockScales& all, int64_t begin, int64_t rows, int64_t cols) {
  if (all.values.size() <= 1) return all;
  const int64_t across = (cols - 1) / all.block_cols + 1;
  const auto from = all.values.begin() + begin / all.block_rows * across;
  const auto until = all.values.begin() + ((begin + rows - 1) / all.block_rows + 1) * across;
  return {{from, until}, all.block_rows, all.block_cols};
}

Weight view(const StoredTensor& stored, int64_t begin, int64_t rows, int64_t cols) {
  Weight weight;
  weight.name = stored.name;
  weight.format = stored.tensor.format;
  weight.rows = rows;
  weight.cols = cols;
  weight.data = stored.tensor.data + begin * weight.format->row_bytes(cols);
  weight.scales = scales_of(stored.scales, begin, rows, cols);
  return weight;
}

}  // namespace

WeightLoader::WeightLoader(const ModelFiles& files, const Arch& arch, std::vector<TensorRequest>* requests)
    : files_(files),
      arch_(arch),
      requests_(requests),
      has_parts_(std::ranges::any_of(files.tensors, [](const auto& one) { return is_weight_part(one.name); })) {}

std::string WeightLoader::folder_name(std::string_view canonical) const {
  std::string name = huggingface_name(arch_, canonical);
  if (const auto& [from, to] = renamed_; !from.empty() && name.starts_with(from)) name.replace(0, from.size(), to);
  return name;
}

const StoredTensor* WeightLoader::find(std::string_view canonical, bool* transposed) const {
  if (transposed) *transposed = false;
  if (files_.kind == ModelFiles::Kind::gguf) {
    const StoredTensor* stored = files_.find(gguf_tensor_name(arch_, canonical));
    if (!stored) stored = files_.find(canonical);
    return stored || !has_parts_ ? stored : find_factored(files_, canonical);
  }
  std::string name = folder_name(canonical);
  if (name.starts_with("^")) {
    if (transposed) *transposed = true;
    name.erase(0, 1);
  }
  if (name.empty()) return nullptr;
  for (const auto& spelling : spellings(name))
    if (const StoredTensor* stored = files_.find(spelling)) return stored;
  return nullptr;
}

Result<void> WeightLoader::note(std::string_view canonical, int64_t rows, int64_t cols) {
  if (requests_->size() >= kMaxRequests)
    return Error::unsupported(fmt::format("{}: more than {} tensors to list", files_.path, kMaxRequests));
  bool transposed = false;
  const StoredTensor* stored = find(canonical, &transposed);
  requests_->push_back({std::string(canonical), stored, transposed ? cols : rows, transposed ? rows : cols});
  return {};
}

Result<void> WeightLoader::note_values(std::string_view canonical, int64_t rows, int64_t cols) {
  MILLRACE_TRY_VOID(note(canonical, rows, cols));
  if (rows > kMaxListedValues / std::max<int64_t>(1, cols))
    return Error::unsupported(fmt::format("{}: {} would have [{}, {}] values, of which at most {} are listed",
                                          files_.path, canonical, rows, cols, kMaxListedValues));
  return {};
}

Result<const StoredTensor*> WeightLoader::require(std::string_view canonical, bool* transposed) const {
  if (const StoredTensor* stored = find(canonical, transposed)) return stored;
  std::string name = files_.kind == ModelFiles::Kind::gguf ? std::string(canonical) : folder_name(canonical);
  return Error::corrupt(fmt::format("{}: tensor {} is missing", files_.path, name.empty() ? canonical : name));
}

Result<Weight> WeightLoader::transposed_rows(const StoredTensor& stored, int64_t total_rows, int64_t begin,
                                             int64_t rows, int64_t cols) {
  const Tensor& tensor = stored.tensor;
  const Format& format = *tensor.format;
  if (tensor.rank != 2 || tensor.dims[0] != cols || tensor.dims[1] != total_rows)
    return wrong_shape(files_, stored, cols, total_rows);
  if (format.block_values != 1)
    return Error::unsupported(
        fmt::format("{}: tensor {} is stored transposed and in blocks ({})", files_.path, stored.name, format.name));
  Weight weight;
  weight.name = stored.name;
  weight.format = find_format("f32");
  weight.rows = rows;
  weight.cols = cols;
  weight.data = tensor.data + begin * format.block_bytes;
  weight.column_format = &format;
  weight.column_stride = format.row_bytes(total_rows);
  return weight;
}

Result<Weight> WeightLoader::rows_of(std::string_view canonical, int64_t total_rows, int64_t begin, int64_t rows,
                                     int64_t cols) {
  if (requests_) {
    MILLRACE_TRY_VOID(note(canonical, total_rows, cols));
    Weight weight;
    weight.format = find_format("f32");
    weight.rows = rows;
    weight.cols = cols;
    return weight;
  }
  bool transposed = false;
  MILLRACE_TRY(const StoredTensor* stored, require(canonical, &transposed));
  if (has_parts_) {
    const PartRows at{total_rows, begin, rows, cols};
    if (is_weight_part(stored->name)) return read_factored(files_, *stored, at);
    MILLRACE_TRY(auto codebook, read_codebook(files_, *stored, at));
    if (codebook) return codebook_rows(*stored, at, std::move(codebook));
  }
  MILLRACE_TRY_VOID(check_format(files_, *stored));
  if (transposed) return transposed_rows(*stored, total_rows, begin, rows, cols);
  const Tensor& tensor = stored->tensor;
  if (tensor.cols() != cols || tensor.rows() != total_rows ||
      (tensor.rank > 2 && begin == 0 && rows == total_rows && tensor.dims[0] != 1))
    return wrong_shape(files_, *stored, total_rows, cols);
  if (cols % tensor.format->block_values != 0) {
    return Error::corrupt(fmt::format("{}: tensor {} has {} columns, not whole blocks of {} ({})", files_.path,
                                      stored->name, cols, tensor.format->block_values, tensor.format->name));
  }
  if (stored->scales.values.size() > 1 && begin % stored->scales.block_rows != 0)
    return Error::unsupported(
        fmt::format("{}: tensor {} is fused, and row {} is in the middle of blocks of {} rows that share scales",
                    files_.path, stored->name, begin, stored->scales.block_rows));
  Weight weight = view(*stored, begin, rows, cols);
  if (has_parts_) {
    MILLRACE_TRY(weight.parts, read_weight_parts(files_, *stored, {total_rows, begin, rows, cols}));
  }
  return weight;
}

Result<Weight> WeightLoader::codebook_rows(const StoredTensor& stored, const PartRows& at,
                                           std::shared_ptr<Codebook> codebook) {
  Weight weight;
  weight.name = stored.name;
  weight.format = &codebook_format(*codebook);
  weight.rows = at.rows;
  weight.cols = at.cols;
  weight.data = stored.tensor.data + at.begin * codebook->row_bytes(at.cols);
  weight.codebook = std::move(codebook);
  MILLRACE_TRY(weight.parts, read_weight_parts(files_, stored, at));
  return weight;
}

Result<Weight> WeightLoader::transpose_of(std::string_view canonical, int64_t total_rows, int64_t begin, int64_t count,
                                          int64_t cols) {
  MILLRACE_TRY(Weight weight, rows_of(canonical, total_rows, begin, count, cols));
  if (weight.column_format || weight.parts || weight.codebook || !weight.scales.values.empty())
    return Error::unsupported(fmt::format(
        "{}: tensor {} is transposed, and has parts or scales, or is stored transposed", files_.path, weight.name));
  weight.column_format = weight.format;
  weight.column_stride = weight.format->row_bytes(cols);
  if (weight.format->block_values > 1) weight.format = find_format("f16");
  weight.rows = cols;
  weight.cols = count;
  return weight;
}

Result<Weight> WeightLoader::matrix(std::string_view canonical, int64_t rows, int64_t cols) {
  return rows_of(canonical, rows, 0, rows, cols);
}

Result<Weight> WeightLoader::optional_matrix(std::string_view canonical, int64_t rows, int64_t cols) {
  if (!find(canonical)) return Weight{};
  return matrix(canonical, rows, cols);
}

Result<std::vector<float>> WeightLoader::vector(std::string_view canonical, int64_t n) {
  if (requests_) {
    MILLRACE_TRY_VOID(note_values(canonical, 1, n));
    return std::vector<float>(static_cast<size_t>(n));
  }
  MILLRACE_TRY(const StoredTensor* stored, require(canonical, nullptr));
  if (has_parts_ && is_weight_part(stored->name))
    return Error::corrupt(
        fmt::format("{}: tensor {} is missing; only matrices can be factored", files_.path, canonical));
  MILLRACE_TRY_VOID(check_format(files_, *stored));
  const Tensor& tensor = stored->tensor;
  if (tensor.values() != n) return wrong_shape(files_, *stored, 1, n);
  if (n % tensor.format->block_values != 0) return wrong_shape(files_, *stored, 1, n);
  std::vector<float> out(static_cast<size_t>(n));
  tensor.format->decode(tensor.data, out.data(), n);
  for (float value : out) {
    if (!(value - value == 0.0f))
      return Error::corrupt(
          fmt::format("{}: tensor {} at offset {} holds NaN or infinity", files_.path, stored->name, stored->offset));
  }
  return out;
}

Result<std::vector<float>> WeightLoader::table(std::string_view canonical, int64_t rows, int64_t cols) {
  if (requests_) {
    MILLRACE_TRY_VOID(note_values(canonical, rows, cols));
    return std::vector<float>(static_cast<size_t>(rows * cols));
  }
  MILLRACE_TRY(const StoredTensor* stored, require(canonical, nullptr));
  if (stored->tensor.rows() != rows || stored->tensor.cols() != cols) return wrong_shape(files_, *stored, rows, cols);
  return vector(canonical, rows * cols);
}

Result<std::vector<float>> WeightLoader::optional_vector(std::string_view canonical, int64_t n) {
  if (!find(canonical)) return std::vector<float>();
  return vector(canonical, n);
}

}  // namespace millrace
