// From which part of zeros on the sparse product (models/blocks/part_products.h) is faster than the dense one, of
// matrices as large as those of a 1.1B Llama. Prints a table: time of one product of each number format, and that of
// the sparse product as a multiple of it. One thread, processor time, weights from memory; the least of some rounds in
// turns.
//
//   sparse_pays [TOKENS]      rows of the input, 1 without it
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "kernels/activation.h"
#include "kernels/kernel_table.h"
#include "kernels/linear.h"
#include "kernels/part_kernels.h"
#include "models/blocks/part_products.h"

namespace millrace {
namespace {

constexpr int64_t kColdBytes = 256 << 20;  // of matrices that are multiplied one after the other
constexpr int kRounds = 7;

struct Shape {
  const char* name;
  int64_t rows, cols;
};
constexpr Shape kShapes[] = {
    {"q, 2048 x 2048", 2048, 2048}, {"gate, 5632 x 2048", 5632, 2048}, {"down, 2048 x 5632", 2048, 5632}};
constexpr const char* kFormats[] = {"f16", "q8_0", "q4_0"};
struct Zeros {
  const char* name;
  double part;
  bool pattern;  // 2:4
};
constexpr Zeros kZeros[] = {{"2:4", 0.5, true},       {"50 %", 0.5, false},  {"75 %", 0.75, false},
                            {"87.5 %", 0.875, false}, {"90 %", 0.9, false},  {"95 %", 0.95, false},
                            {"97 %", 0.97, false},    {"98 %", 0.98, false}, {"99 %", 0.99, false}};

double processor_seconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Seconds of a product: all copies of a matrix, one after the other.
struct Product {
  std::function<void(size_t)> multiply;
  size_t copies = 1;
  double best = 1e9;

  void round() {
    const double begin = processor_seconds();
    for (size_t i = 0; i < copies; ++i) multiply(i);
    best = std::min(best, (processor_seconds() - begin) / static_cast<double>(copies));
  }
};

SparseMatrix sparse_matrix(const Shape& shape, const Zeros& zeros, std::mt19937& random) {
  SparseMatrix out;
  out.row_begin = {0};
  std::bernoulli_distribution kept(1 - zeros.part);
  for (int64_t r = 0; r < shape.rows; ++r) {
    int64_t first = 0;  // of the two of four
    for (int64_t c = 0; c < shape.cols; ++c) {
      if (c % 4 == 0) first = static_cast<int64_t>(random() % 2);
      if (!(zeros.pattern ? c % 2 == first : kept(random))) continue;
      out.columns.push_back(static_cast<int32_t>(c));
      out.values.push_back(1.0f / static_cast<float>(c + 1));
    }
    out.row_begin.push_back(std::ssize(out.columns));
  }
  return out;
}

size_t copies_of(int64_t bytes) {
  return static_cast<size_t>(std::max<int64_t>(1, kColdBytes / std::max<int64_t>(1, bytes)));
}

struct Bench {
  const KernelTable& table;
  ThreadPool& pool;
  int64_t tokens;
  std::vector<float> x, y;
};

// Negative: out of memory.
double dense_seconds(Bench& bench, const Shape& shape, const Format& format) {
  std::vector<float> row(static_cast<size_t>(shape.cols), 0.5f);
  std::vector<uint8_t> stored(static_cast<size_t>(shape.rows * format.row_bytes(shape.cols)));
  for (int64_t r = 0; r < shape.rows; ++r)
    format.encode(row.data(), stored.data() + r * format.row_bytes(shape.cols), shape.cols);
  std::vector<Weight> weights(copies_of(std::ssize(stored)));
  for (Weight& weight : weights) {
    weight.name = "bench";
    weight.format = &format;
    weight.rows = shape.rows;
    weight.cols = shape.cols;
    weight.data = stored.data();
    if (!pack_weight(weight, bench.table, bench.pool)) return -1;
  }
  auto scratch = AlignedBuffer::allocate(bench.tokens * activation_row_bytes(format.activation, shape.cols), "scratch");
  if (!scratch) return -1;
  Product product;
  product.copies = weights.size();
  product.multiply = [&](size_t i) {
    const ActivationRows rows = encode_activations(bench.table, bench.pool, format.activation, bench.x.data(),
                                                   shape.cols, bench.tokens, shape.cols, scratch->data());
    linear(bench.pool, weights[i], rows, bench.y.data(), shape.rows);
  };
  for (int i = 0; i < kRounds; ++i) product.round();
  return product.best;
}

double sparse_seconds(Bench& bench, const Shape& shape, const Zeros& zeros, std::mt19937& random) {
  const SparseMatrix one = sparse_matrix(shape, zeros, random);
  const std::vector<SparseMatrix> all(copies_of(8 * std::ssize(one.values)), one);
  std::vector<float> turned(static_cast<size_t>(kTurnedTokens * shape.cols));
  Product product;
  product.copies = all.size();
  const PartKernels& kernels = part_kernels(bench.table.isa);
  const auto one_tile = [&](const SparseMatrix& m, int64_t first, int64_t count) {
    kernels.turn_tokens(bench.x.data() + first * shape.cols, shape.cols, count, shape.cols, turned.data());
    kernels.add_sparse({.row_begin = m.row_begin.data(),
                        .columns = m.columns.data(),
                        .values = m.values.data(),
                        .rows = shape.rows,
                        .turned = turned.data(),
                        .tokens = count,
                        .y = bench.y.data() + first * shape.rows,
                        .y_stride = shape.rows});
  };
  product.multiply = [&](size_t i) {
    if (bench.tokens < kTurnedFrom) {
      for (int64_t t = 0; t < bench.tokens; ++t)
        add_sparse_rows(all[i], bench.x.data() + t * shape.cols, 0, shape.rows, bench.y.data() + t * shape.rows);
      return;
    }
    for (int64_t first = 0; first < bench.tokens; first += kTurnedTokens)
      one_tile(all[i], first, std::min(kTurnedTokens, bench.tokens - first));
  };
  for (int i = 0; i < kRounds; ++i) product.round();
  return product.best;
}

int run(int64_t tokens) {
  auto isa = select_isa();
  if (!isa.ok()) return 1;
  const KernelTable table = make_kernel_table(*isa);
  ThreadPool pool(1);
  std::mt19937 random(1);
  fmt::print("{}, {} token{}\n\n| matrix | zeros |", isa_name(*isa), tokens, tokens == 1 ? "" : "s");
  for (const char* format : kFormats) fmt::print(" {} |", format);
  fmt::print("\n|---|---|---:|---:|---:|\n");
  for (const Shape& shape : kShapes) {
    Bench bench{table, pool, tokens, {}, {}};
    bench.x.resize(static_cast<size_t>(tokens * shape.cols), 0.25f);
    bench.y.resize(static_cast<size_t>(tokens * shape.rows));
    std::vector<double> dense;
    fmt::print("| {} | dense, µs |", shape.name);
    for (const char* name : kFormats) {
      dense.push_back(dense_seconds(bench, shape, *find_format(name)));
      if (dense.back() < 0) return 1;
      fmt::print(" {:.0f} |", 1e6 * dense.back());
    }
    fmt::print("\n");
    for (const Zeros& zeros : kZeros) {
      const double sparse = sparse_seconds(bench, shape, zeros, random);
      fmt::print("| | {} |", zeros.name);
      for (double seconds : dense) fmt::print(" {:.2f} x |", sparse / seconds);
      fmt::print("\n");
    }
  }
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  const int64_t tokens = argc > 1 ? std::strtoll(argv[1], nullptr, 10) : 1;
  if (argc > 2 || tokens < 1 || tokens > 4096) {
    fmt::print(stderr, "usage: sparse_pays [TOKENS], 1 to 4096\n");
    return 2;
  }
  return millrace::run(tokens);
}
