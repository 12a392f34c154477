#include "models/weight_parts_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "formats/format.h"
#include "kernels/codebook_products.h"
#include "kernels/input_rounding.h"
#include "models/tensor_train_loader.h"
#include "tensor/hadamard.h"

namespace millrace {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr int64_t kMaxInteger = 1 << 24;  // that F32 stores exactly, as all below
constexpr std::string_view kLowRankA = ".low_rank_a", kLowRankB = ".low_rank_b";
constexpr std::string_view kPartEndings[] = {
    ".input_shift",   ".input_scale",   ".input_hadamard",  ".input_order",     ".input_format", ".low_rank_a",
    ".low_rank_b",    ".sparse_counts", ".sparse_columns",  ".sparse_values",   ".column_index", ".column_weights",
    ".output_bias",   ".codebook",      ".codebook_groups", ".codebook_scales", ".tensor_train", ".inner_counts",
    ".inner_columns", ".inner_values",  ".output_scale",    ".output_hadamard"};
constexpr int64_t kSegmentValues = 5;  // columns, exponent bits, mantissa bits, group, clip

// The tensor's name without the part's; empty if it is none.
std::string_view matrix_of(std::string_view tensor) {
  for (std::string_view part : kPartEndings)
    if (tensor.ends_with(part)) return tensor.substr(0, tensor.size() - part.size());
  return {};
}

// A part that only a stored matrix can have.
bool needs_levels(std::string_view tensor) {
  return tensor.find(".input_") != std::string_view::npos || tensor.find(".codebook") != std::string_view::npos ||
         tensor.ends_with(".output_scale") || tensor.ends_with(".output_hadamard");
}

class PartsReader {
 public:
  PartsReader(const ModelFiles& files, std::string prefix, const PartRows& at)
      : files_(files), prefix_(std::move(prefix)), at_(at) {}

  Result<void> read(WeightParts& parts) {
    if (const StoredTensor* train = find(".tensor_train"); train && train->name != kTensorTrain)
      return wrong(*train, "makes a matrix a tensor train, which only token_embd.weight can be");
    if (!parts.factored) {
      MILLRACE_TRY_VOID(read_input(parts.input));
      MILLRACE_TRY_VOID(read_output(parts.output));
      MILLRACE_TRY_VOID(read_rounding(parts.input.rounding));
    }
    MILLRACE_TRY_VOID(read_low_rank(parts));
    MILLRACE_TRY_VOID(read_columns(parts));
    if (const StoredTensor* stored = find(".output_bias")) {
      MILLRACE_TRY(const auto bias, values(*stored, at_.total_rows));
      parts.bias.assign(bias.begin() + at_.begin, bias.begin() + at_.begin + at_.rows);
    }
    return read_sparse(".sparse", at_.total_rows, at_.begin, at_.rows, parts.sparse);
  }

  // `indices`: the matrix.
  Result<void> read_codebook(const StoredTensor& indices, Codebook& book) const {
    MILLRACE_TRY(const StoredTensor* stored, require(".codebook"));
    MILLRACE_TRY_VOID(read_shape(*stored, book));
    MILLRACE_TRY_VOID(read_groups(*stored, book));
    const Tensor& matrix = indices.tensor;
    if (indices.type_name != "I8" || matrix.rank != 2 || matrix.rows() != at_.total_rows ||
        matrix.cols() != book.row_bytes(at_.cols))
      return wrong(indices,
                   fmt::format("is {} of shape [{}, {}], must be I8 [{}, {}]: indices of {} bits for a codebook",
                               indices.type_name, matrix.rows(), matrix.cols(), at_.total_rows,
                               book.row_bytes(at_.cols), book.bits));
    const int64_t first = at_.begin / book.rows_per_table, end = (at_.begin + at_.rows - 1) / book.rows_per_table + 1;
    const int64_t values = book.tables_per_row * book.table_values();
    book.first_row = at_.begin % book.rows_per_table;
    book.entries.resize(static_cast<size_t>((end - first) * values));
    std::memcpy(book.entries.data(), stored->tensor.data + first * values * 2, book.entries.size() * sizeof(uint16_t));
    for (uint16_t entry : book.entries)
      if ((entry & 0x7c00) == 0x7c00) return wrong(*stored, "holds NaN or infinity");
    round_codewords(book);
    if (const StoredTensor* scales = find(".codebook_scales")) {
      MILLRACE_TRY(const auto of_rows, this->values(*scales, at_.total_rows));
      book.row_scales.assign(of_rows.begin() + at_.begin, of_rows.begin() + at_.begin + at_.rows);
    }
    if (codebook_format(book).encode && largest_weight(book) > kMaxQ8Weight)
      return wrong(*stored, fmt::format("stands for weights of up to {:.3g}, may have at most {:.3g}",
                                        largest_weight(book), kMaxQ8Weight));
    return {};
  }

 private:
  Result<void> read_shape(const StoredTensor& stored, Codebook& book) const {
    const Tensor& tensor = stored.tensor;
    if (tensor.format != find_format("f16") || tensor.rank != 4)
      return Error::unsupported(
          fmt::format("{}: tensor {} is {} with {} dimensions, must be F16 [tables, books, "
                      "entries, dim]",
                      files_.path, stored.name, stored.type_name, tensor.rank));
    const auto [tables, books, entries, dim] = tensor.dims;
    const auto power = [](int64_t n, int64_t most) {
      return n >= 1 && n <= most && std::has_single_bit(static_cast<uint64_t>(n));
    };
    if (books < 1 || books > Codebook::kMaxBooks || !power(dim, Codebook::kMaxDim) || entries < 2 ||
        !power(entries, int64_t{1} << Codebook::kMaxBits) || at_.cols % dim != 0)
      return wrong(stored, fmt::format("has {} books of {} entries of {} values: at most {} books, {} entries and {} "
                                       "values, both powers of two, for {} columns",
                                       books, entries, dim, Codebook::kMaxBooks, 1 << Codebook::kMaxBits,
                                       Codebook::kMaxDim, at_.cols));
    book.books = static_cast<int>(books);
    book.dim = static_cast<int>(dim);
    book.bits = std::countr_zero(static_cast<uint64_t>(entries));
    return {};
  }

  Result<void> read_groups(const StoredTensor& stored, Codebook& book) const {
    const int64_t tables = stored.tensor.dims[0];
    book.cols_per_table = at_.cols;
    if (const StoredTensor* groups = find(".codebook_groups")) {
      MILLRACE_TRY(const auto sizes, integers(*groups, 2, kMaxInteger));
      book.rows_per_table = sizes[0];
      book.cols_per_table = sizes[1];
      if (sizes[0] < 1 || sizes[1] < 1 || sizes[1] % book.dim != 0)
        return wrong(*groups, fmt::format("has {} rows and {} columns: at least 1, and columns in multiples of {}",
                                          sizes[0], sizes[1], book.dim));
    } else if (tables >= 1 && at_.total_rows % tables == 0) {
      book.rows_per_table = at_.total_rows / tables;
    }
    book.tables_per_row = (at_.cols + book.cols_per_table - 1) / book.cols_per_table;
    const int64_t needed = (at_.total_rows + book.rows_per_table - 1) / book.rows_per_table * book.tables_per_row;
    if (tables != needed)
      return wrong(stored, fmt::format("has {} tables, must have {}: one for {} rows and {} columns", tables, needed,
                                       book.rows_per_table, book.cols_per_table));
    return {};
  }

  const StoredTensor* find(std::string_view part) const { return files_.find(prefix_ + std::string(part)); }

  Error wrong(const StoredTensor& stored, const std::string& what) const {
    return Error::corrupt(fmt::format("{}: tensor {} at offset {} {}", files_.path, stored.name, stored.offset, what));
  }

  Result<const StoredTensor*> require(std::string_view part) const {
    if (const StoredTensor* stored = find(part)) return stored;
    return Error::corrupt(fmt::format("{}: tensor {}{} is missing", files_.path, prefix_, part));
  }

  // `n` values; any number if it is -1.
  Result<std::vector<float>> values(const StoredTensor& stored, int64_t n) const {
    const Tensor& tensor = stored.tensor;
    if (tensor.format != find_format("f32"))  // so that reading takes no more memory than the file
      return Error::unsupported(
          fmt::format("{}: tensor {} has type {}, must have F32", files_.path, stored.name, stored.type_name));
    if (n >= 0 && tensor.values() != n)
      return wrong(stored, fmt::format("has {} values, must have {}", tensor.values(), n));
    std::vector<float> out(static_cast<size_t>(tensor.values()));
    tensor.format->decode(tensor.data, out.data(), tensor.values());
    for (float value : out)
      if (!(value - value == 0.0f)) return wrong(stored, "holds NaN or infinity");
    return out;
  }

  // Whole numbers from 0 to `most`.
  Result<std::vector<int32_t>> integers(const StoredTensor& stored, int64_t n, int64_t most) const {
    MILLRACE_TRY(const std::vector<float> read, values(stored, n));
    most = std::min(most, kMaxInteger);
    std::vector<int32_t> out;
    out.reserve(read.size());
    for (float value : read) {
      if (!(value >= 0) || value > static_cast<float>(most) || static_cast<float>(static_cast<int32_t>(value)) != value)
        return wrong(stored, fmt::format("holds {}, must be whole numbers from 0 to {}", value, most));
      out.push_back(static_cast<int32_t>(value));
    }
    return out;
  }

  Result<void> read_input(InputChange& input) const {
    if (const StoredTensor* stored = find(".input_shift")) {
      MILLRACE_TRY(input.shift, values(*stored, at_.cols));
    }
    if (const StoredTensor* stored = find(".input_scale")) {
      MILLRACE_TRY(input.scale, values(*stored, at_.cols));
    }
    if (const StoredTensor* stored = find(".input_hadamard")) {
      MILLRACE_TRY_VOID(read_hadamard(*stored, input.hadamard, input.outer));
      if (!is_block(input.hadamard) || at_.cols % (input.hadamard * input.outer) != 0)
        return wrong(*stored, fmt::format("has a block of {}, must be a power of two that divides {} columns",
                                          input.hadamard, at_.cols));
    }
    if (const StoredTensor* stored = find(".input_order")) {
      if (input.outer > 1) return wrong(*stored, "does not go with blocks that are mixed, whose order is fixed");
      MILLRACE_TRY(input.order, integers(*stored, at_.cols, at_.cols - 1));
    }
    return {};
  }

  Result<void> read_output(OutputChange& output) const {
    if (const StoredTensor* stored = find(".output_scale")) {
      MILLRACE_TRY(const auto all, values(*stored, at_.total_rows));
      output.scale.assign(all.begin() + at_.begin, all.begin() + at_.begin + at_.rows);
    }
    if (const StoredTensor* stored = find(".output_hadamard")) {
      MILLRACE_TRY_VOID(read_hadamard(*stored, output.hadamard, output.outer));
      const int64_t rows = output.hadamard * output.outer;
      if (!is_block(output.hadamard) || at_.total_rows % rows != 0)
        return wrong(*stored, fmt::format("has a block of {}, must be a power of two that divides {} rows",
                                          output.hadamard, at_.total_rows));
      if (at_.begin % rows == 0 && at_.rows % rows == 0) return {};
      output.fused = at_.total_rows;
      output.begin = at_.begin;
    }
    return {};
  }

  static bool is_block(int64_t size) { return size >= 2 && std::has_single_bit(static_cast<uint64_t>(size)); }

  // The block size, and the order of the matrix that mixes blocks.
  Result<void> read_hadamard(const StoredTensor& stored, int64_t& block, int64_t& outer) const {
    MILLRACE_TRY(const auto sizes, integers(stored, std::clamp<int64_t>(stored.tensor.values(), 1, 2), kMaxHadamard));
    block = sizes.front();
    outer = sizes.size() > 1 ? sizes.back() : 1;
    if (outer != 1 && hadamard_matrix(outer).empty())
      return wrong(stored, fmt::format("mixes {} blocks, for which there is no Hadamard matrix", outer));
    return {};
  }

  Result<Weight> factor(const StoredTensor& stored, int64_t rows, int64_t cols, int64_t begin, int64_t count) const {
    const Tensor& tensor = stored.tensor;
    if (!tensor.format)
      return Error::unsupported(fmt::format("{}: tensor {} has type {}", files_.path, stored.name, stored.type_name));
    if (tensor.rank != 2 || tensor.rows() != rows || tensor.cols() != cols || cols % tensor.format->block_values != 0)
      return wrong(stored,
                   fmt::format("has shape [{}, {}], must have [{}, {}]", tensor.rows(), tensor.cols(), rows, cols));
    Weight weight;
    weight.name = stored.name;
    weight.format = tensor.format;
    weight.rows = count;
    weight.cols = cols;
    weight.data = tensor.data + begin * tensor.format->row_bytes(cols);
    return weight;
  }

  Result<void> read_low_rank(WeightParts& parts) const {
    const StoredTensor *a = find(".low_rank_a"), *inner = find(".inner_counts");
    if (inner && (a || !find(".low_rank_b") || !parts.factored))
      return wrong(*inner, "is of a sparse factor, which stands with a .low_rank_b in place of a matrix");
    if (!a && !find(".low_rank_b")) return {};
    MILLRACE_TRY(const StoredTensor* b, require(".low_rank_b"));
    if (!inner) {
      MILLRACE_TRY(a, require(".low_rank_a"));
    }
    const int64_t rank = inner ? inner->tensor.values() : a->tensor.rows();
    if (rank < 1 || rank > kMaxLowRank)
      return wrong(inner ? *inner : *a, fmt::format("has rank {}, must be 1 to {}", rank, kMaxLowRank));
    if (inner) {
      MILLRACE_TRY_VOID(read_sparse(".inner", rank, 0, rank, parts.sparse));
    } else {
      MILLRACE_TRY(parts.low_rank_a, factor(*a, rank, at_.cols, 0, rank));
    }
    MILLRACE_TRY(parts.low_rank_b, factor(*b, at_.total_rows, rank, at_.begin, at_.rows));
    return {};
  }

  Result<void> read_rounding(std::vector<InputSegment>& rounding) const {
    const StoredTensor* stored = find(".input_format");
    if (!stored) return {};
    const int64_t count = stored->tensor.rows();
    if (stored->tensor.rank != 2 || stored->tensor.cols() != kSegmentValues || count < 1 || count > at_.cols)
      return wrong(*stored, fmt::format("has shape [{}, {}], must have [segments, {}], at most {} segments", count,
                                        stored->tensor.cols(), kSegmentValues, at_.cols));
    MILLRACE_TRY(const auto numbers, values(*stored, count * kSegmentValues));
    int64_t columns = 0;
    for (int64_t i = 0; i < count; ++i) {
      const float* own = numbers.data() + i * kSegmentValues;
      for (int64_t k = 0; k + 1 < kSegmentValues; ++k)
        if (!(own[k] >= 0) || own[k] > static_cast<float>(at_.cols) + 16 || own[k] != std::floor(own[k]))
          return wrong(*stored, fmt::format("holds {}, must be whole numbers but for the clip", own[k]));
      const InputSegment segment{static_cast<int32_t>(own[0]), static_cast<int32_t>(own[1]),
                                 static_cast<int32_t>(own[2]), static_cast<int32_t>(own[3]), own[4]};
      if (!valid_segment(segment))
        return wrong(*stored, fmt::format("has a segment of {} columns, {} exponent and {} mantissa bits, groups of {} "
                                          "and clip {}, which is none",
                                          own[0], own[1], own[2], own[3], own[4]));
      columns += segment.columns;
      rounding.push_back(segment);
    }
    if (columns != at_.cols) return wrong(*stored, fmt::format("is of {} columns, must be of {}", columns, at_.cols));
    return {};
  }

  Result<void> read_columns(WeightParts& parts) const {
    if (!find(".column_index") && !find(".column_weights")) return {};
    MILLRACE_TRY(const StoredTensor* index, require(".column_index"));
    MILLRACE_TRY(const StoredTensor* stored, require(".column_weights"));
    const int64_t count = index->tensor.values();
    if (count < 1 || count > at_.cols)
      return wrong(*index, fmt::format("has {} columns, must have 1 to {}", count, at_.cols));
    MILLRACE_TRY(parts.columns, integers(*index, count, at_.cols - 1));
    for (size_t i = 1; i < parts.columns.size(); ++i)
      if (parts.columns[i] <= parts.columns[i - 1]) return wrong(*index, "is not in ascending order");
    MILLRACE_TRY(parts.column_weights, factor(*stored, at_.total_rows, count, at_.begin, at_.rows));
    return {};
  }

  // Rows [begin, begin + rows) of a sparse matrix with total_rows, whose tensors' names begin with `stem`.
  Result<void> read_sparse(const std::string& stem, int64_t total_rows, int64_t begin, int64_t rows,
                           SparseMatrix& sparse) const {
    const std::string names[] = {stem + "_counts", stem + "_columns", stem + "_values"};
    if (!find(names[0]) && !find(names[1]) && !find(names[2])) return {};
    MILLRACE_TRY(const StoredTensor* stored_counts, require(names[0]));
    MILLRACE_TRY(const StoredTensor* stored_columns, require(names[1]));
    MILLRACE_TRY(const StoredTensor* stored_values, require(names[2]));
    if (!sparse.empty()) return wrong(*stored_counts, "is a second sparse matrix, in addition to a sparse factor");
    MILLRACE_TRY(const auto counts, integers(*stored_counts, total_rows, at_.cols));
    int64_t first = 0, all = 0;  // of this matrix's rows
    for (int64_t r = 0; r < total_rows; ++r) {
      if (r == begin) first = all;
      all += counts[static_cast<size_t>(r)];
    }
    MILLRACE_TRY(const auto columns, integers(*stored_columns, all, at_.cols - 1));
    MILLRACE_TRY(const auto numbers, values(*stored_values, all));
    sparse.row_begin = {0};
    for (int64_t r = begin, at = first; r < begin + rows; ++r) {
      const int64_t end = at + counts[static_cast<size_t>(r)];
      for (int64_t i = at + 1; i < end; ++i)
        if (columns[static_cast<size_t>(i)] <= columns[static_cast<size_t>(i - 1)])
          return wrong(*stored_columns, fmt::format("is not in ascending order in row {}", r));
      at = end;
      sparse.row_begin.push_back(end - first);
    }
    sparse.columns.assign(columns.begin() + first, columns.begin() + first + sparse.row_begin.back());
    sparse.values.assign(numbers.begin() + first, numbers.begin() + first + sparse.row_begin.back());
    return {};
  }

  const ModelFiles& files_;
  std::string prefix_;
  PartRows at_;
};

// As far as they can be read; else `cols`, as without groups.
int64_t columns_of_table(const ModelFiles& files, const std::string& codebook, int64_t cols) {
  const StoredTensor* groups = files.find(codebook + "_groups");
  if (!groups || groups->tensor.format != find_format("f32") || groups->tensor.values() != 2) return cols;
  float sizes[2] = {};
  groups->tensor.format->decode(groups->tensor.data, sizes, 2);
  return sizes[1] >= 1 && sizes[1] < static_cast<float>(cols) ? static_cast<int64_t>(sizes[1]) : cols;
}

}  // namespace

int64_t multiplied_bytes(const ModelFiles& files, const StoredTensor& stored) {
  const Format* indices = nullptr;
  const int64_t weights = stored_weights(files, stored, &indices);
  return indices == &codebook_indices() ? find_format("q8_0")->row_bytes(weights) : stored.tensor.bytes;
}

int64_t stored_weights(const ModelFiles& files, const StoredTensor& stored, const Format** indices) {
  if (indices) *indices = nullptr;
  if (stored.tensor.format) return stored.tensor.values();
  if (!stored.name.ends_with(kWeight)) return 0;
  const StoredTensor* tables = files.find(stored.name.substr(0, stored.name.size() - kWeight.size()) + ".codebook");
  if (!tables || tables->tensor.rank != 4) return 0;
  const auto& [count, books, entries, dim] = tables->tensor.dims;
  const int64_t bits = std::bit_width(static_cast<uint64_t>(entries)) - 1;
  if (bits < 1 || bits > Codebook::kMaxBits || books < 1 || books > Codebook::kMaxBooks || dim > Codebook::kMaxDim)
    return 0;
  const int64_t rows = stored.tensor.rows(), cols = stored.tensor.cols() * 8 / (bits * books) * dim;
  if (!indices) return rows * cols;
  *indices = &codebook_indices();
  Codebook book{.bits = static_cast<int>(bits), .dim = static_cast<int>(dim), .books = static_cast<int>(books)};
  book.cols_per_table = columns_of_table(files, tables->name, cols);
  book.tables_per_row = (cols + book.cols_per_table - 1) / book.cols_per_table;
  if (codebook_is_table16(book)) *indices = &table16_indices();
  if (count == 1 && codewords_fit(book)) *indices = &codeword_indices();
  return rows * cols;
}

bool is_weight_part(std::string_view tensor) { return !matrix_of(tensor).empty(); }

const StoredTensor* find_factored(const ModelFiles& files, std::string_view matrix) {
  if (files.kind != ModelFiles::Kind::gguf || !matrix.ends_with(kWeight) || files.find(matrix)) return nullptr;
  return files.find(std::string(matrix.substr(0, matrix.size() - kWeight.size())) + std::string(kLowRankB));
}

bool is_side_part(const ModelFiles& files, std::string_view tensor) {
  const std::string_view matrix = matrix_of(tensor);
  if (matrix.empty()) return false;
  const bool pair = tensor.ends_with(kLowRankA) || tensor.ends_with(kLowRankB);
  return !pair || !find_factored(files, std::string(matrix) + std::string(kWeight));
}

Result<std::shared_ptr<WeightParts>> read_weight_parts(const ModelFiles& files, const StoredTensor& matrix,
                                                       const PartRows& at) {
  if (!matrix.name.ends_with(kWeight)) return std::shared_ptr<WeightParts>();
  const std::string prefix = matrix.name.substr(0, matrix.name.size() - kWeight.size());
  const bool any = std::ranges::any_of(kPartEndings, [&](auto part) {
    const StoredTensor* stored = files.find(prefix + std::string(part));
    return stored && stored->name != kTensorTrain;
  });
  if (!any) return std::shared_ptr<WeightParts>();
  if (matrix.tensor.rank > 2)
    return Error::unsupported(
        fmt::format("{}: tensor {}: a stack of experts cannot have weight parts", files.path, matrix.name));
  auto parts = std::make_shared<WeightParts>();
  MILLRACE_TRY_VOID(PartsReader(files, prefix, at).read(*parts));
  return parts;
}

Result<Weight> read_factored(const ModelFiles& files, const StoredTensor& low_rank_b, const PartRows& at) {
  const std::string prefix = low_rank_b.name.substr(0, low_rank_b.name.size() - kLowRankB.size());
  if (prefix.ends_with("_exps"))
    return Error::unsupported(
        fmt::format("{}: tensor {}: a stack of experts cannot be factored", files.path, low_rank_b.name));
  auto parts = std::make_shared<WeightParts>();
  parts->factored = true;
  MILLRACE_TRY_VOID(PartsReader(files, prefix, at).read(*parts));
  Weight weight;
  weight.name = prefix + std::string(kWeight);
  // A sparse factor multiplies inputs as they are.
  weight.format = parts->low_rank_a.present() ? parts->low_rank_a.format : find_format("f32");
  weight.rows = at.rows;
  weight.cols = at.cols;
  weight.parts = std::move(parts);
  return weight;
}

Result<std::shared_ptr<Codebook>> read_codebook(const ModelFiles& files, const StoredTensor& matrix,
                                                const PartRows& at) {
  if (!matrix.name.ends_with(kWeight)) return std::shared_ptr<Codebook>();
  const std::string prefix = matrix.name.substr(0, matrix.name.size() - kWeight.size());
  if (!files.find(prefix + ".codebook")) return std::shared_ptr<Codebook>();
  auto book = std::make_shared<Codebook>();
  MILLRACE_TRY_VOID(PartsReader(files, prefix, at).read_codebook(matrix, *book));
  return book;
}

Result<void> check_parts_have_matrices(const ModelFiles& files) {
  if (files.kind != ModelFiles::Kind::gguf) return {};
  for (const StoredTensor& stored : files.tensors) {
    const std::string_view matrix = matrix_of(stored.name);
    const std::string whole = std::string(matrix) + std::string(kWeight);
    if (matrix.empty() || files.find(whole)) continue;
    if (find_factored(files, whole) && !needs_levels(stored.name)) continue;
    return Error::corrupt(fmt::format("{}: tensor {} is a part of {}{}, which the file does not have", files.path,
                                      stored.name, matrix, kWeight));
  }
  return {};
}

}  // namespace millrace
