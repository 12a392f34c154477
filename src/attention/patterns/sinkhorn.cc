// Sparse Sinkhorn Attention (Tay et al., 2020), without its training: a block of queries sees itself and the block of
// keys that it is matched with. Blocks are matched by scores of their pooled contents, which Sinkhorn normalization
// makes doubly stochastic, so that no block of keys is matched with all of the queries:
//
//   x[i][j] = exp(m[i] . m[j] / (sqrt(dims) t))          m: mean key of a block, t: temperature, j before i
//   u[i] = 1 / sum over j of x[i][j] v[j]                rows sum to 1
//   v[j] = c[j] / sum over i of x[i][j] u[i]             columns sum to c[j]; both in turns, `rounds` times
//
// The paper scores by a network that is trained with the model; here m is its pooled block, and a query's own row is
// its product with the mean keys, times v. Under a causal mask the only doubly stochastic matrix matches each block
// with itself, so columns sum to what they have if every block spreads evenly over those before it. Only the newest
// `rows` rows are looked at, which bounds the time. A query sees the `top` blocks of its row in place of their weighted
// sum.
#include <cmath>

#include "attention/patterns/choosing_pattern.h"

namespace millrace {
namespace {

constexpr float kLeastLog = -60;  // of x, relative to the largest of its row, and of v
constexpr size_t kLanes = 8;

float product(std::span<const float> a, std::span<const float> b) {
  float sums[kLanes] = {}, sum = 0;
  size_t i = 0;
  for (; i + kLanes <= a.size(); i += kLanes)
    for (size_t l = 0; l < kLanes; ++l) sums[l] += a[i + l] * b[i + l];
  for (; i < a.size(); ++i) sum += a[i] * b[i];
  for (float lane : sums) sum += lane;
  return sum;
}

class Sinkhorn final : public ChoosingPattern {
 public:
  explicit Sinkhorn(const OptionValues& options)
      : ChoosingPattern(options),
        rows_(options.integer("rows")),
        rounds_(options.integer("rounds")),
        temperature_(static_cast<float>(options.number("temperature"))) {}

  int64_t summary_floats(int64_t head_dim) const override { return head_dim; }
  void add_key(const PatternPlace&, std::span<const float> key, std::span<float> summary) const override {
    for (size_t d = 0; d < key.size(); ++d) summary[d] += key[d] / static_cast<float>(block());
  }
  void add_query(const PatternPlace&, std::span<const float> query, std::span<float> features) const override {
    for (size_t d = 0; d < query.size(); ++d) features[d] += query[d];
  }

  int64_t balance_floats(int64_t blocks) const override {
    return 3 * blocks + rows_of(blocks) * (blocks + 1);  // v, c, sums of columns; of each row u, x
  }
  void balance(const BlockSummaries& summaries, std::span<float> added, std::span<float> work) const override {
    const int64_t blocks = std::ssize(added), rows = rows_of(blocks);
    Matrix m{.first = blocks - rows, .rows = rows, .columns = blocks, .work = work};
    fill(summaries, m);
    std::fill_n(m.v(), blocks, 1.0f);
    float even = 0;
    for (int64_t j = blocks - 1; j >= 0; --j) {
      m.c()[j] = even;
      if (j >= m.first && j > 0) even += 1 / static_cast<float>(j);
    }
    for (int64_t round = 0; round < rounds_; ++round) normalize(m);
    write(m, added);
  }

 private:
  // Row r is that of block first + r.
  struct Matrix {
    int64_t first, rows, columns;
    std::span<float> work;
    float* v() const { return work.data(); }
    float* c() const { return v() + columns; }
    float* sums() const { return c() + columns; }
    float* u() const { return sums() + columns; }
    float* x(int64_t r) const { return u() + rows + r * columns; }
  };

  int64_t rows_of(int64_t blocks) const { return std::max<int64_t>(0, std::min(rows_, blocks - 1)); }

  void fill(const BlockSummaries& summaries, const Matrix& m) const {
    for (int64_t r = 0; r < m.rows; ++r) {
      const auto own = summaries[m.first + r];
      const float scale = 1 / (std::sqrt(static_cast<float>(own.size())) * temperature_);
      float* x = m.x(r);
      float most = -std::numeric_limits<float>::infinity();
      for (int64_t j = 0; j < m.first + r; ++j) most = std::max(most, x[j] = scale * product(own, summaries[j]));
      for (int64_t j = 0; j < m.first + r; ++j) x[j] = std::exp(std::min(0.0f, std::max(kLeastLog, x[j] - most)));
    }
  }

  static void normalize(const Matrix& m) {
    std::fill_n(m.sums(), m.columns, 0.0f);
    for (int64_t r = 0; r < m.rows; ++r) {
      const float* x = m.x(r);
      float sum = 0;
      for (int64_t j = 0; j < m.first + r; ++j) sum += x[j] * m.v()[j];
      m.u()[r] = 1 / sum;
      for (int64_t j = 0; j < m.first + r; ++j) m.sums()[j] += x[j] * m.u()[r];
    }
    const float least = std::exp(kLeastLog), most = std::exp(-kLeastLog);
    for (int64_t j = 0; j < m.columns - 1; ++j) m.v()[j] = std::clamp(m.c()[j] / m.sums()[j], least, most);
  }

  // v has a free factor: its mean logarithm is 0. The newest block has no row yet, and stays as it is.
  void write(const Matrix& m, std::span<float> added) const {
    float mean = 0;
    for (int64_t j = 0; j < m.columns; ++j) mean += added[static_cast<size_t>(j)] = std::log(m.v()[j]);
    if (m.rows > 0) mean /= static_cast<float>(m.columns - 1);
    for (int64_t j = 0; j < m.columns; ++j) {
      float& to = added[static_cast<size_t>(j)];
      to = j + 1 < m.columns ? temperature_ * (to - mean) : 0.0f;
    }
  }

  int64_t rows_, rounds_;
  float temperature_;
};

}  // namespace

Result<std::unique_ptr<AttentionPattern>> make_sinkhorn(const OptionValues& options) {
  return std::unique_ptr<AttentionPattern>(std::make_unique<Sinkhorn>(options));
}

}  // namespace millrace
