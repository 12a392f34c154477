#include "compress/rounding/lattice_rounding.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "compress/rounding/lattice_codes.h"
#include "formats/e8p_block.h"

namespace millrace {
namespace {

constexpr int64_t kRowsTogether = 8;       // that one thread rounds together
constexpr int64_t kCarriedTogether = 512;  // columns that errors are carried to at a time
constexpr int64_t kLatticeBlock = kE8pBlockValues;
constexpr int64_t kEight = kE8pValues;

// The eight values of a code under a block's scale.
void read_point(const LatticeCode& lattice, uint32_t code, float scale, double* out) {
  int8_t numbers[kEight];
  lattice.numbers(code, numbers);
  const float unit = scale * lattice.unit;  // as the format decodes
  for (int64_t i = 0; i < kEight; ++i) out[i] = unit * static_cast<float>(numbers[i]);
}

uint32_t nearest_point(const LatticeCode& lattice, const double* target, double inverse) {
  float x[kEight];
  for (int64_t i = 0; i < kEight; ++i) x[i] = static_cast<float>(std::clamp(target[i] * inverse, -1e6, 1e6));
  return lattice.nearest(x);
}

double inverse_of(const LatticeCode& lattice, float scale) {
  return scale > 0 ? 1 / (double{scale} * lattice.lattice) : 0;
}

// One block of 256 weights of one row.
struct LatticeBlock {
  uint32_t codes[kE8pPoints] = {};
  F16Scale d;
  double error = INFINITY;                      // squared outputs that its columns add
  std::array<double, kLatticeBlock> rest = {};  // w - q
};

// Rounds rows of one matrix, block after block.
class LatticeRounder {
 public:
  LatticeRounder(PassMatrix& matrix, const TriangleFactor& factor, const LatticeOptions& options, int64_t rows)
      : matrix_(matrix),
        lattice_(*find_lattice(*matrix.format)),
        factor_(factor),
        tries_(options.search ? lattice_.tries.size() : 1),
        carried_(static_cast<size_t>(rows * matrix.cols)),
        errors_(static_cast<size_t>(rows * kLatticeBlock)) {}

  void run(int64_t first, int64_t rows) {
    for (int64_t begin = 0; begin < matrix_.cols; begin += kLatticeBlock) {
      for (int64_t r = 0; r < rows; ++r) {
        const float* weights = matrix_.values.data() + (first + r) * matrix_.cols + begin;
        const LatticeBlock best = choose(weights, carried_.data() + r * matrix_.cols + begin, begin);
        uint8_t* row = matrix_.encoded.data() + (first + r) * matrix_.format->row_bytes(matrix_.cols);
        uint8_t* block = row + begin / kLatticeBlock * lattice_.block_bytes;
        store_u16(block, best.d.bits);
        for (int p = 0; p < kE8pPoints; ++p) lattice_.store(block, p, best.codes[p]);
        std::ranges::copy(best.rest, errors_.begin() + r * kLatticeBlock);
      }
      carry(rows, begin);
    }
  }

 private:
  LatticeBlock choose(const float* weights, const double* carried, int64_t begin) const {
    double squares = 0;
    for (int64_t c = 0; c < kLatticeBlock; ++c) squares += double{weights[c]} * weights[c];
    const auto size = static_cast<float>(std::sqrt(squares / kLatticeBlock));
    LatticeBlock best;
    for (size_t i = 0; i < tries_; ++i) {
      LatticeBlock tried;
      tried.d = make_f16_scale(lattice_.tries[i] * size / lattice_.lattice);
      round(weights, carried, begin, tried);
      if (i == 0 || tried.error < best.error) best = tried;
    }
    return best;
  }

  void round(const float* weights, const double* carried, int64_t begin, LatticeBlock& out) const {
    const double inverse = inverse_of(lattice_, out.d.stored);
    double sum[kLatticeBlock];
    std::copy_n(carried, kLatticeBlock, sum);
    out.error = 0;
    for (int64_t b = 0; b < kLatticeBlock; b += kEight) {
      double target[kEight], point[kEight], z[kEight];
      for (int64_t i = 0; i < kEight; ++i) {
        z[i] = sum[b + i];
        for (int64_t j = 0; j < i; ++j) z[i] -= factor_.row(begin + b + j)[i - j] * z[j];
        z[i] /= factor_.diagonal(begin + b + i);
        target[i] = weights[b + i] + z[i];
      }
      const uint32_t code = nearest_point(lattice_, target, inverse);
      out.codes[b / kEight] = code;
      read_point(lattice_, code, out.d.stored, point);
      for (int64_t i = 0; i < kEight; ++i) {
        const double* line = factor_.row(begin + b + i);
        const double rest = weights[b + i] - point[i];
        out.rest[static_cast<size_t>(b + i)] = rest;
        for (int64_t k = b + i; k < kLatticeBlock; ++k) sum[k] += line[k - b - i] * rest;
        out.error += sum[b + i] * sum[b + i];
      }
    }
  }

  // The errors of a block, to all later columns.
  void carry(int64_t rows, int64_t begin) {
    for (int64_t from = begin + kLatticeBlock; from < matrix_.cols; from += kCarriedTogether) {
      const int64_t count = std::min(kCarriedTogether, matrix_.cols - from);
      for (int64_t r = 0; r < rows; ++r) {
        double* to = carried_.data() + r * matrix_.cols + from;
        for (int64_t i = 0; i < kLatticeBlock; ++i) {
          const double* line = factor_.row(begin + i) + (from - begin - i);
          const double error = errors_[static_cast<size_t>(r * kLatticeBlock + i)];
          for (int64_t k = 0; k < count; ++k) to[k] += line[k] * error;
        }
      }
    }
  }

  PassMatrix& matrix_;
  const LatticeCode& lattice_;
  const TriangleFactor& factor_;
  size_t tries_;
  std::vector<double> carried_;  // [rows, cols]
  std::vector<double> errors_;   // [rows, 256]
};

// The sweeps over one row after the other.
class LatticeSweeps {
 public:
  LatticeSweeps(PassMatrix& matrix, const SecondMoments& moments)
      : matrix_(matrix),
        lattice_(*find_lattice(*matrix.format)),
        dense_(moments.dense()),
        inverses_(static_cast<size_t>(matrix.cols * kEight)) {
    const double least = 1e-9 * moments.diagonal_mean();
    for (int64_t begin = 0; begin < matrix.cols; begin += kEight) invert(begin, least);
  }

  void run(int64_t row, int sweeps) const {
    const int64_t cols = matrix_.cols;
    const float* weights = matrix_.values.data() + row * cols;
    uint8_t* blocks = matrix_.encoded.data() + row * matrix_.format->row_bytes(cols);
    std::vector<float> stored(static_cast<size_t>(cols));
    matrix_.format->decode(blocks, stored.data(), cols);
    std::vector<double> pull(static_cast<size_t>(cols));  // H (w - q)
    for (int64_t i = 0; i < cols; ++i) {
      const double rest = double{weights[i]} - stored[static_cast<size_t>(i)];
      add(pull, i, rest);
    }
    for (int sweep = 0; sweep < sweeps; ++sweep) {
      bool changed = false;
      for (int64_t begin = 0; begin < cols; begin += kEight) {
        uint8_t* block = blocks + begin / kLatticeBlock * lattice_.block_bytes;
        changed |= improve(begin, block, stored.data(), pull);
      }
      if (!changed) break;
    }
  }

 private:
  const double* line(int64_t i) const { return dense_.data() + i * matrix_.cols; }

  void add(std::vector<double>& pull, int64_t column, double rest) const {
    const double* from = line(column);
    for (int64_t k = 0; k < matrix_.cols; ++k) pull[static_cast<size_t>(k)] += from[k] * rest;
  }

  bool improve(int64_t begin, uint8_t* block, float* stored, std::vector<double>& pull) const {
    const float scale = load_f16(block);
    const auto place = static_cast<int>(begin % kLatticeBlock / kEight);
    double target[kEight], point[kEight], change[kEight];
    const double* inverse = inverses_.data() + begin * kEight;
    for (int64_t i = 0; i < kEight; ++i) {
      target[i] = stored[begin + i];
      for (int64_t j = 0; j < kEight; ++j) target[i] += inverse[i * kEight + j] * pull[static_cast<size_t>(begin + j)];
    }
    const uint32_t found = nearest_point(lattice_, target, inverse_of(lattice_, scale));
    if (found == lattice_.load(block, place)) return false;
    read_point(lattice_, found, scale, point);
    double gain = 0;
    for (int64_t i = 0; i < kEight; ++i) {
      change[i] = double{stored[begin + i]} - point[i];
      gain -= 2 * change[i] * pull[static_cast<size_t>(begin + i)];
      for (int64_t j = 0; j <= i; ++j) gain -= (j < i ? 2 : 1) * change[i] * change[j] * line(begin + i)[begin + j];
    }
    if (!(gain > 0)) return false;
    lattice_.store(block, place, found);
    for (int64_t i = 0; i < kEight; ++i) {
      stored[begin + i] = static_cast<float>(point[i]);
      add(pull, begin + i, change[i]);
    }
    return true;
  }

  // H_BB^-1, by elimination without pivots, which a positive definite matrix needs none of.
  void invert(int64_t begin, double damping) {
    double left[kEight][kEight], right[kEight][kEight] = {};
    for (int64_t i = 0; i < kEight; ++i) {
      for (int64_t j = 0; j < kEight; ++j) left[i][j] = line(begin + i)[begin + j] + (i == j ? damping : 0);
      right[i][i] = 1;
    }
    for (int64_t i = 0; i < kEight; ++i) {
      const double pivot = std::max(left[i][i], damping);
      for (int64_t j = 0; j < kEight; ++j) {
        left[i][j] /= pivot;
        right[i][j] /= pivot;
      }
      for (int64_t k = 0; k < kEight; ++k) {
        if (k == i) continue;
        const double factor = left[k][i];
        for (int64_t j = 0; j < kEight; ++j) {
          left[k][j] -= factor * left[i][j];
          right[k][j] -= factor * right[i][j];
        }
      }
    }
    for (int64_t i = 0; i < kEight; ++i) std::copy_n(right[i], kEight, inverses_.begin() + begin * kEight + i * kEight);
  }

  PassMatrix& matrix_;
  const LatticeCode& lattice_;
  std::vector<double> dense_;     // H, [cols, cols]
  std::vector<double> inverses_;  // [cols / 8, 8, 8]
};

}  // namespace

void round_to_lattice(PassMatrix& matrix, const TriangleFactor& factor, const SecondMoments& moments,
                      const LatticeOptions& options, ThreadPool& pool) {
  matrix.encoded.resize(static_cast<size_t>(matrix.rows * matrix.format->row_bytes(matrix.cols)));
  const int64_t tiles = (matrix.rows + kRowsTogether - 1) / kRowsTogether;
  pool.parallel_for(tiles, [&](int64_t tile, int) {
    const int64_t first = tile * kRowsTogether, rows = std::min(kRowsTogether, matrix.rows - first);
    LatticeRounder(matrix, factor, options, rows).run(first, rows);
  });
  if (options.sweeps == 0) return;
  const LatticeSweeps sweeps(matrix, moments);
  pool.parallel_for(matrix.rows, [&](int64_t row, int) { sweeps.run(row, options.sweeps); });
}

int64_t lattice_bytes(int64_t cols) { return cols * (cols + kEight) * 8; }

}  // namespace millrace
