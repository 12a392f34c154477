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
#include <limits>
#include <numeric>

#include "compress/factories.h"
#include "compress/preview.h"
#include "tensor/half.h"

namespace millrace {
namespace {

constexpr int kMostRounds = 60;

// The weights of a row in ascending order, with sums that give a cluster's mean at once.
struct SortedRow {
  std::vector<double> values;
  std::vector<double> weight, moment, square;  // [n + 1], sums of w, w v, w v^2 before each

  SortedRow(const float* row, const std::vector<double>& cost, const std::vector<uint8_t>& left_out) {
    std::vector<int32_t> order;
    for (size_t c = 0; c < cost.size(); ++c)
      if (!left_out[c]) order.push_back(static_cast<int32_t>(c));
    std::ranges::sort(order, [&](int32_t a, int32_t b) { return row[a] != row[b] ? row[a] < row[b] : a < b; });
    weight.push_back(0), moment.push_back(0), square.push_back(0);
    for (int32_t c : order) {
      const double v = row[c], w = cost[static_cast<size_t>(c)];
      values.push_back(v);
      weight.push_back(weight.back() + w);
      moment.push_back(moment.back() + w * v);
      square.push_back(square.back() + w * v * v);
    }
  }

  int64_t size() const { return std::ssize(values); }
  double mean(int64_t begin, int64_t end) const {
    return (moment[static_cast<size_t>(end)] - moment[static_cast<size_t>(begin)]) /
           (weight[static_cast<size_t>(end)] - weight[static_cast<size_t>(begin)]);
  }
  // The value up to which a part of the cost lies.
  double quantile(double part) const {
    const auto at = std::ranges::lower_bound(weight, part * weight.back()) - weight.begin();
    return values[static_cast<size_t>(std::clamp<int64_t>(at - 1, 0, size() - 1))];
  }
};

// Lloyd's iterations; `centers` are ascending. Returns the cost.
double iterate(const SortedRow& row, std::vector<double>& centers) {
  const auto k = std::ssize(centers);
  std::vector<int64_t> bounds(static_cast<size_t>(k + 1));
  bounds.back() = row.size();
  double cost = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kMostRounds; ++round) {
    for (int64_t i = 1; i < k; ++i) {
      const double middle = (centers[static_cast<size_t>(i - 1)] + centers[static_cast<size_t>(i)]) / 2;
      bounds[static_cast<size_t>(i)] = std::ranges::upper_bound(row.values, middle) - row.values.begin();
    }
    double now = 0;
    for (int64_t i = 0; i < k; ++i) {
      const auto begin = bounds[static_cast<size_t>(i)], end = bounds[static_cast<size_t>(i + 1)];
      const double weight = row.weight[static_cast<size_t>(end)] - row.weight[static_cast<size_t>(begin)];
      if (!(weight > 0)) continue;  // stays where it is
      double& center = centers[static_cast<size_t>(i)];
      center = row.mean(begin, end);
      now += row.square[static_cast<size_t>(end)] - row.square[static_cast<size_t>(begin)] - center * center * weight;
    }
    if (!(now < cost * (1 - 1e-9))) break;
    cost = now;
  }
  return cost;
}

// The better of two beginnings: centers at equal parts of the cost, and at equal distances.
std::vector<double> choose_centers(const SortedRow& row, int64_t count) {
  if (row.size() == 0 || !(row.weight.back() > 0)) return std::vector<double>(static_cast<size_t>(count));
  std::vector<double> best;
  double least = std::numeric_limits<double>::infinity();
  for (const bool even : {false, true}) {
    std::vector<double> centers;
    for (int64_t i = 0; i < count; ++i) {
      const double part = (static_cast<double>(i) + 0.5) / static_cast<double>(count);
      centers.push_back(even ? row.values.front() + part * (row.values.back() - row.values.front())
                             : row.quantile(part));
    }
    const double cost = iterate(row, centers);
    if (!best.empty() && !(cost < least)) continue;
    least = cost;
    best = std::move(centers);
  }
  std::ranges::sort(best);
  return best;
}

class SqueezeLlm final : public Pass {
 public:
  SqueezeLlm(int bits, double sparse, std::string format) : bits_(bits), sparse_(sparse), format_(std::move(format)) {}

  uint32_t needs() const override { return kInputNorms; }
  std::string format() const override { return format_; }
  bool fixes_levels() const override { return true; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override {
    return rows * (int64_t{2} << bits_) + static_cast<int64_t>(sparse_ * static_cast<double>(rows * cols)) * 16;
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
    std::vector<float> table;
    std::vector<double> centers = choose_centers(SortedRow(row.data(), cost, left_out), size);
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
  std::string format_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_squeezellm_pass(const OptionValues& options) {
  const std::string& name = options.text("format");
  const Format* format = find_format(name);
  if (!name.empty() && (!format || format->gguf_type < 0))
    return Error::user(fmt::format("format '{}': must be a format that GGUF files can have, such as q8_0", name));
  return std::unique_ptr<Pass>(
      std::make_unique<SqueezeLlm>(static_cast<int>(options.integer("bits")), options.number("sparse"), name));
}

}  // namespace millrace
