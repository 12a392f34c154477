// SqueezeLLM (Kim et al., 2023, "SqueezeLLM: Dense-and-Sparse Quantization"): each row of a matrix is stored as indices
// into a table of its own weights, which k-means chooses: a weight counts as much as an error in it costs. The few
// weights that cost most even so move to a sparse matrix.
//
// The paper takes the cost from the diagonal of the Fisher information, the squared gradients of the loss. There is no
// backward pass here: a weight's cost is the mean square of its input, the same diagonal of its own matrix's squared
// output error, which forward passes give.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/line_clusters.h"
#include "compress/factories.h"
#include "compress/output/preview.h"
#include "tensor/half.h"

namespace millrace {
namespace {

// How the entries of a row's table are chosen.
enum class Table : uint8_t {
  k_means,
  even,  // at equal distances from the row's least to its largest weight: plain rounding with a scale and a zero point
         // for each row, with which the paper compares
};

std::vector<double> even_levels(const std::vector<float>& values, int64_t count) {
  std::vector<double> out(static_cast<size_t>(count));
  if (values.empty()) return out;
  const auto [least, most] = std::ranges::minmax(values);
  for (int64_t i = 0; i < count; ++i)
    out[static_cast<size_t>(i)] =
        least + (double{most} - least) * static_cast<double>(i) / static_cast<double>(count - 1);
  return out;
}

class SqueezeLlm final : public Pass {
 public:
  SqueezeLlm(int bits, double sparse, Table table, std::string format)
      : bits_(bits), sparse_(sparse), table_(table), format_(std::move(format)) {}

  uint32_t needs() const override { return kInputNorms; }
  std::string format() const override { return format_; }
  bool fixes_levels() const override { return true; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override {
    return rows * ((int64_t{2} << bits_) + cols * bits_ / 8 + 1) +
           static_cast<int64_t>(sparse_ * static_cast<double>(rows * cols)) * 16;
  }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    if (!matrix.no_parts.empty()) return preview_left(std::string(matrix.no_parts));
    if (!matrix.parts.input.empty()) return preview_left("its inputs are changed, and their sizes not measured");
    if (sparse_ > 0 && !matrix.parts.sparse.empty()) return preview_left("it has a sparse matrix already");
    preview_tables(matrix, bits_, matrix.cols);
    if (const auto of_row = static_cast<int64_t>(sparse_ * static_cast<double>(matrix.cols)); of_row > 0)
      preview_sparse(matrix, of_row * matrix.rows);
    return PassPreview{"quantized", "", false};
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (!matrix.no_parts.empty()) return PassRow{"left", std::string(matrix.no_parts), {}};
    if (!matrix.parts.input.empty()) return PassRow{"left", "its inputs are changed, and their sizes not measured", {}};
    if (sparse_ > 0 && !matrix.parts.sparse.empty()) return PassRow{"left", "it has a sparse matrix already", {}};
    Codebook& book = matrix.codebook;
    book.bits = bits_;
    book.cols_per_table = matrix.cols;
    book.entries.resize(static_cast<size_t>(matrix.rows << bits_));
    matrix.encoded.assign(static_cast<size_t>(matrix.rows * book.row_bytes(matrix.cols)), 0);
    std::vector<double> cost = statistics.squares;
    const double mean = std::accumulate(cost.begin(), cost.end(), 0.0) / static_cast<double>(cost.size());
    for (double& one : cost) one += mean > 0 ? mean * 1e-4 : 1;  // inputs that never occurred
    std::vector<std::vector<int32_t>> moved(static_cast<size_t>(matrix.rows));
    pool.parallel_for(matrix.rows,
                      [&](int64_t r, int) { quantize_row(matrix, cost, r, moved[static_cast<size_t>(r)]); });
    PassRow done{"quantized", "", {{"table", static_cast<double>(int64_t{1} << bits_)}}};
    if (const int64_t count = add_sparse(matrix, moved); count > 0)
      done.figures.emplace_back("sparse", static_cast<double>(count));
    return done;
  }

 private:
  // Chooses the table and the indices of one row, and which of its columns move to the sparse matrix.
  void quantize_row(PassMatrix& matrix, const std::vector<double>& cost, int64_t r, std::vector<int32_t>& moved) const {
    const int64_t cols = matrix.cols;
    std::vector<float> row(matrix.values.begin() + r * cols, matrix.values.begin() + (r + 1) * cols);
    for (int64_t c = 0; c < cols; ++c)
      if (matrix.pruned(r, c)) row[static_cast<size_t>(c)] = 0;
    std::vector<uint8_t> left_out(static_cast<size_t>(cols));
    const SparseMatrix& sparse = matrix.parts.sparse;
    for (int64_t i = sparse.empty() ? 0 : sparse.row_begin[static_cast<size_t>(r)];
         !sparse.empty() && i < sparse.row_begin[static_cast<size_t>(r + 1)]; ++i)
      left_out[static_cast<size_t>(sparse.columns[static_cast<size_t>(i)])] = 1;
    set_table(matrix, row, cost, left_out, r);
    const auto count = static_cast<int64_t>(sparse_ * static_cast<double>(cols));
    if (count == 0) return;
    std::vector<float> decoded(static_cast<size_t>(cols));
    matrix.decode_row(r, decoded.data());
    std::vector<int32_t> order(static_cast<size_t>(cols));
    std::iota(order.begin(), order.end(), 0);
    const auto loss = [&](int32_t c) {
      const double error = static_cast<double>(row[static_cast<size_t>(c)]) - decoded[static_cast<size_t>(c)];
      return error * error * cost[static_cast<size_t>(c)];
    };
    std::ranges::nth_element(order, order.begin() + count, [&](int32_t a, int32_t b) {
      const double x = loss(a), y = loss(b);
      return x != y ? x > y : a < b;
    });
    moved.assign(order.begin(), order.begin() + count);
    std::ranges::sort(moved);
    for (int32_t c : moved) left_out[static_cast<size_t>(c)] = 1;
    set_table(matrix, row, cost, left_out, r);  // without them
  }

  void set_table(PassMatrix& matrix, const std::vector<float>& row, const std::vector<double>& cost,
                 const std::vector<uint8_t>& left_out, int64_t r) const {
    Codebook& book = matrix.codebook;
    const int64_t size = int64_t{1} << bits_;
    std::vector<float> table, values;
    std::vector<double> costs;
    for (size_t c = 0; c < row.size(); ++c) {
      if (left_out[c]) continue;
      values.push_back(row[c]);
      costs.push_back(cost[c]);
    }
    std::vector<double> centers =
        table_ == Table::even ? even_levels(values, size) : cluster_means(values, costs, size);
    if (!matrix.kept.empty())  // pruned weights stay zero
      *std::ranges::min_element(centers, {}, [](double center) { return std::fabs(center); }) = 0;
    for (double center : centers) {
      const uint16_t entry = f32_to_f16(std::clamp(static_cast<float>(center), -65504.0f, 65504.0f));
      book.entries[static_cast<size_t>(r * size + std::ssize(table))] = entry;
      table.push_back(f16_to_f32(entry));
    }
    uint8_t* const indices = matrix.encoded.data() + r * book.row_bytes(matrix.cols);
    std::fill_n(indices, book.row_bytes(matrix.cols), uint8_t{0});
    for (int64_t c = 0; c < matrix.cols; ++c) {
      const float value = row[static_cast<size_t>(c)];
      auto above = std::ranges::lower_bound(table, value);
      if (above == table.end() || (above != table.begin() && value - *(above - 1) <= *above - value)) --above;
      set_codebook_index(book, indices, c, static_cast<uint32_t>(above - table.begin()));
    }
  }

  // The sparse matrix adds to the dense one, so it holds what is missing there. Returns its new values.
  static int64_t add_sparse(PassMatrix& matrix, const std::vector<std::vector<int32_t>>& moved) {
    SparseMatrix& sparse = matrix.parts.sparse;
    std::vector<float> decoded(static_cast<size_t>(matrix.cols));
    if (!sparse.empty()) {  // of an earlier pass: `values` are zero there
      for (int64_t r = 0; r < matrix.rows; ++r) {
        matrix.decode_row(r, decoded.data());
        for (int64_t i = sparse.row_begin[static_cast<size_t>(r)]; i < sparse.row_begin[static_cast<size_t>(r + 1)];
             ++i)
          sparse.values[static_cast<size_t>(i)] -= decoded[static_cast<size_t>(sparse.columns[static_cast<size_t>(i)])];
      }
      return 0;
    }
    if (std::ranges::all_of(moved, [](const auto& row) { return row.empty(); })) return 0;
    sparse.row_begin = {0};
    for (int64_t r = 0; r < matrix.rows; ++r) {
      matrix.decode_row(r, decoded.data());
      for (int32_t c : moved[static_cast<size_t>(r)]) {
        sparse.columns.push_back(c);
        const float value = matrix.pruned(r, c) ? 0 : matrix.values[static_cast<size_t>(r * matrix.cols + c)];
        sparse.values.push_back(value - decoded[static_cast<size_t>(c)]);
      }
      sparse.row_begin.push_back(std::ssize(sparse.values));
    }
    return std::ssize(sparse.values);
  }

  int bits_;
  double sparse_;
  Table table_;
  std::string format_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_squeezellm_pass(const OptionValues& options) {
  const std::string& name = options.text("format");
  const Format* format = find_format(name);
  if (!name.empty() && (!format || format->gguf_type < 0))
    return Error::user(fmt::format("format '{}': must be a format that GGUF files can have, such as q8_0", name));
  const std::string& table = options.text("table");
  if (table != "k_means" && table != "even")
    return Error::user(fmt::format("table '{}': must be k_means or even", table));
  return std::unique_ptr<Pass>(std::make_unique<SqueezeLlm>(static_cast<int>(options.integer("bits")),
                                                            options.number("sparse"),
                                                            table == "even" ? Table::even : Table::k_means, name));
}

}  // namespace millrace
