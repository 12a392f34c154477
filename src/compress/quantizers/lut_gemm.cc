// LUT-GEMM's weights (Park et al., 2022, "LUT-GEMM: Quantized Matrix Multiplication based on LUTs for Efficient
// Inference in Large-Scale Generative Language Models"): binary-coding quantization. A group of weights of a row is a
// sum of q scaled bits and an offset,
//
//   w ~ z + a_1 b_1 + ... + a_q b_q,   b_i = -1 or 1
//
// The scales begin greedily, a_i being the mean magnitude of the residual that the earlier ones leave. Then, in turns,
// each weight takes the nearest of the 2^q sums, and the scales and z take the values of least squared error (Xu et
// al., 2018, "Alternating Multi-bit Quantization for Recurrent Neural Networks"). These turns end in a local minimum,
// so they also begin with evenly spaced sums over several parts of the range, which are plain rounding; the smallest
// error counts. So the code is never worse than plain rounding with the same groups.
//
// The paper multiplies bit plane by bit plane with tables of sums of inputs. Here the 2^q sums of a group are a table
// of weights (tensor/codebook.h), and bit i of an index is b_i.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ranges>

#include "compress/factories.h"
#include "compress/output/preview.h"
#include "tensor/half.h"

namespace millrace {
namespace {

constexpr int kMaxBits = 4;
constexpr std::array<double, 5> kStarts = {0, 1, 0.85, 0.7, 0.55};  // see BinaryCode
using Scales = std::array<double, kMaxBits + 1>;                    // a_1 .. a_q, z last of the q + 1 that are used

// The binary code of one group.
class BinaryCode {
 public:
  // `part`: of the range, over which the sums begin evenly spaced; 0: they begin greedily.
  BinaryCode(const float* values, int64_t size, int bits, double part)
      : values_(values), size_(size), bits_(bits), codes_(static_cast<size_t>(size)) {
    part > 0 ? start_evenly(part) : start_greedily();
  }

  // Returns the squared error.
  double iterate(int iterations) {
    double error = assign();
    for (int i = 0; i < iterations; ++i) {
      const Scales before = scales_;
      if (!solve()) return error;
      const double found = assign();
      if (found < error * (1 - 1e-9)) {
        error = found;
        continue;
      }
      scales_ = before;
      return assign();
    }
    return error;
  }

  double sum(uint32_t index) const {
    double out = scales_[static_cast<size_t>(bits_)];
    for (int i = 0; i < bits_; ++i)
      out += (index >> i & 1) ? scales_[static_cast<size_t>(i)] : -scales_[static_cast<size_t>(i)];
    return out;
  }

 private:
  void start_evenly(double part) {
    const auto [least, most] = std::minmax_element(values_, values_ + size_);
    scales_[static_cast<size_t>(bits_)] = (double{*least} + *most) / 2;
    const double unit = part * (double{*most} - *least) / 2 / ((1 << bits_) - 1);
    for (int i = 0; i < bits_; ++i) scales_[static_cast<size_t>(i)] = std::ldexp(unit, i);
  }

  void start_greedily() {
    std::vector<double> rest(values_, values_ + size_);
    double mean = 0;
    for (double x : rest) mean += x / static_cast<double>(size_);
    for (double& x : rest) x -= mean;
    scales_[static_cast<size_t>(bits_)] = mean;
    for (int i = 0; i < bits_; ++i) {
      double magnitude = 0;
      for (double x : rest) magnitude += std::fabs(x) / static_cast<double>(size_);
      scales_[static_cast<size_t>(i)] = magnitude;
      for (double& x : rest) x -= x < 0 ? -magnitude : magnitude;
    }
  }

  // The nearest sum of each weight; returns the squared error.
  double assign() {
    std::array<double, size_t{1} << kMaxBits> sums{};
    for (uint32_t code = 0; code < uint32_t{1} << bits_; ++code) sums[code] = sum(code);
    double error = 0;
    for (int64_t i = 0; i < size_; ++i) {
      double least = INFINITY;
      for (uint32_t code = 0; code < uint32_t{1} << bits_; ++code) {
        const double distance = std::fabs(values_[i] - sums[code]);
        if (!(distance < least)) continue;
        least = distance;
        codes_[static_cast<size_t>(i)] = code;
      }
      error += least * least;
    }
    return error;
  }

  // Scales and offset of least error for the bits as they are: normal equations, by elimination. False: singular.
  bool solve() {
    const int n = bits_ + 1;
    std::array<std::array<double, kMaxBits + 2>, kMaxBits + 1> rows{};
    for (int64_t i = 0; i < size_; ++i) {
      std::array<double, kMaxBits + 1> x{};
      for (int j = 0; j < bits_; ++j) x[static_cast<size_t>(j)] = (codes_[static_cast<size_t>(i)] >> j & 1) ? 1 : -1;
      x[static_cast<size_t>(bits_)] = 1;
      for (size_t a = 0; a < static_cast<size_t>(n); ++a) {
        for (size_t b = 0; b < static_cast<size_t>(n); ++b) rows[a][b] += x[a] * x[b];
        rows[a][static_cast<size_t>(n)] += x[a] * values_[i];
      }
    }
    for (size_t p = 0; p < static_cast<size_t>(n); ++p) {
      if (!(rows[p][p] > 1e-9 * static_cast<double>(size_))) return false;
      for (size_t a = 0; a < static_cast<size_t>(n); ++a) {
        if (a == p) continue;
        const double factor = rows[a][p] / rows[p][p];
        for (size_t b = p; b <= static_cast<size_t>(n); ++b) rows[a][b] -= factor * rows[p][b];
      }
    }
    for (size_t p = 0; p < static_cast<size_t>(n); ++p) scales_[p] = rows[p][static_cast<size_t>(n)] / rows[p][p];
    return true;
  }

  const float* values_;
  int64_t size_;
  int bits_;
  Scales scales_{};
  std::vector<uint32_t> codes_;
};

class LutGemm final : public Pass {
 public:
  LutGemm(int bits, int64_t group, int iterations, std::string format)
      : bits_(bits), group_(group), iterations_(iterations), format_(std::move(format)) {}

  uint32_t needs() const override { return kNoStatistics; }
  std::string format() const override { return format_; }
  bool fixes_levels() const override { return true; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override {
    const int64_t tables = group_ > 0 ? (cols + group_ - 1) / group_ : 1;
    return rows * (tables * (int64_t{2} << bits_) + cols * bits_ / 8 + 1);
  }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    if (std::string why = cannot_code(matrix); !why.empty()) return preview_left(std::move(why));
    preview_tables(matrix, bits_, group_ > 0 ? group_ : matrix.cols);
    return PassPreview{"quantized", "", false};
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& /*statistics*/, ThreadPool& pool) override {
    if (std::string why = cannot_code(matrix); !why.empty()) return PassRow{"left", std::move(why), {}};
    const int64_t group = group_ > 0 ? group_ : matrix.cols;
    Codebook& book = matrix.codebook;
    book.bits = bits_;
    book.cols_per_table = group;
    book.tables_per_row = matrix.cols / group;
    book.entries.resize(static_cast<size_t>(matrix.rows * book.tables_per_row) << bits_);
    matrix.encoded.assign(static_cast<size_t>(matrix.rows * book.row_bytes(matrix.cols)), 0);
    pool.parallel_for(matrix.rows, [&](int64_t r, int) {
      for (int64_t t = 0; t < book.tables_per_row; ++t) code_group(matrix, r, t);
    });
    return PassRow{"quantized", "", {{"bits", static_cast<double>(bits_)}}};
  }

 private:
  // Why the matrix is left alone; empty: it is not.
  std::string cannot_code(const PassMatrix& matrix) const {
    if (!matrix.no_parts.empty()) return std::string(matrix.no_parts);
    if (!matrix.kept.empty()) return "it is pruned, and sums of bits have no zero";
    if (!matrix.parts.sparse.empty()) return "it has a sparse matrix, and sums of bits have no zero";
    if (group_ > 0 && matrix.cols % group_ != 0)
      return fmt::format("{} columns are not a multiple of group={}", matrix.cols, group_);
    return "";
  }

  void code_group(PassMatrix& matrix, int64_t r, int64_t t) const {
    Codebook& book = matrix.codebook;
    const int64_t first = t * book.cols_per_table;
    const float* values = matrix.values.data() + r * matrix.cols + first;
    BinaryCode code(values, book.cols_per_table, bits_, kStarts.front());
    double error = code.iterate(iterations_);
    for (const double start : kStarts | std::views::drop(1)) {
      BinaryCode other(values, book.cols_per_table, bits_, start);
      const double found = other.iterate(iterations_);
      if (!(found < error)) continue;
      error = found;
      code = std::move(other);
    }
    std::vector<float> table;
    for (uint32_t index = 0; index < uint32_t{1} << bits_; ++index) {
      const uint16_t entry = f32_to_f16(std::clamp(static_cast<float>(code.sum(index)), -65504.0f, 65504.0f));
      book.entries[(static_cast<size_t>(r * book.tables_per_row + t) << bits_) + index] = entry;
      table.push_back(f16_to_f32(entry));
    }
    uint8_t* const indices = matrix.encoded.data() + r * book.row_bytes(matrix.cols);
    for (int64_t c = 0; c < book.cols_per_table; ++c) {
      const auto distance = [&](float entry) { return std::fabs(entry - values[c]); };
      const auto nearest = std::ranges::min_element(table, {}, distance);
      set_codebook_index(book, indices, first + c, static_cast<uint32_t>(nearest - table.begin()));
    }
  }

  int bits_;
  int64_t group_;
  int iterations_;
  std::string format_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_lut_gemm_pass(const OptionValues& options) {
  const std::string& name = options.text("format");
  const Format* format = find_format(name);
  if (!name.empty() && (!format || format->gguf_type < 0))
    return Error::user(fmt::format("format '{}': must be a format that GGUF files can have, such as q8_0", name));
  return std::unique_ptr<Pass>(std::make_unique<LutGemm>(static_cast<int>(options.integer("bits")),
                                                         options.integer("group"),
                                                         static_cast<int>(options.integer("iterations")), name));
}

}  // namespace millrace
