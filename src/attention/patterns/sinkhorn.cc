// Sparse Sinkhorn Attention (Tay et al., 2020), without its training: a block of queries sees itself and the block of
// keys that it is matched with. Blocks are matched by scores of their pooled contents, which Sinkhorn normalization
// makes doubly stochastic, so that no block of keys is matched with all of the queries:
//
//   x[i][j] = exp(m[i] . m[j] / (sqrt(dims) t))          m: mean key of a block, t: temperature, j before i
//   u[i] = 1 / sum over j of x[i][j] v[j]                rows sum to 1
//   v[j] = c[j] / sum over i of x[i][j] u[i]             columns sum to c[j]; both in turns, `rounds` times
//
// The paper scores by a network that is trained with the model. Where a file has one (sorting_network.h), x[i] is exp
// of its scores for the sum of the keys before block i, divided by t; this row is known before the block begins, and
// all its queries see the best blocks of it. Otherwise m is the pooled block, and a query's own row is its product with
// the mean keys, times v. Under a causal mask the only doubly stochastic matrix matches each block with itself, so
// columns sum to what they have if every block spreads evenly over those before it. Only the newest `rows` rows are
// looked at, which bounds the time. A query sees the `top` blocks of its row in place of their weighted sum.
#include <cmath>

#include "attention/fitted_pattern.h"
#include "attention/patterns/choosing_pattern.h"
#include "attention/patterns/sorting_network.h"

namespace millrace {
namespace {

constexpr float kMinLog = -60;  // of x, relative to the largest of its row, and of v
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

// Rows of the newest blocks, of which the first is that of block `first`; row r has first + r columns.
struct MatchMatrix {
  int64_t first, rows, columns;
  std::span<float> work;

  float* v() const { return work.data(); }
  float* c() const { return v() + columns; }
  float* sums() const { return c() + columns; }
  float* u() const { return sums() + columns; }
  float* x(int64_t r) const { return u() + rows + r * columns; }
  int64_t width(int64_t r) const { return first + r; }
  int64_t matched() const { return rows > 0 ? width(rows - 1) : 0; }  // columns that have a row
};

int64_t matrix_floats(int64_t rows, int64_t columns) { return 3 * columns + rows * (columns + 1); }

// Of scores to weights, relative to the largest of the row.
void exponentiate(float* row, int64_t width) {
  const float most = *std::max_element(row, row + width);
  for (int64_t j = 0; j < width; ++j) row[j] = std::exp(std::min(0.0f, std::max(kMinLog, row[j] - most)));
}

void normalize(const MatchMatrix& m) {
  std::fill_n(m.sums(), m.columns, 0.0f);
  for (int64_t r = 0; r < m.rows; ++r) {
    const float* x = m.x(r);
    float sum = 0;
    for (int64_t j = 0; j < m.width(r); ++j) sum += x[j] * m.v()[j];
    m.u()[r] = 1 / sum;
    for (int64_t j = 0; j < m.width(r); ++j) m.sums()[j] += x[j] * m.u()[r];
  }
  const float least = std::exp(kMinLog), most = std::exp(-kMinLog);
  for (int64_t j = 0; j < m.matched(); ++j) m.v()[j] = std::clamp(m.c()[j] / m.sums()[j], least, most);
}

// From all ones.
void balance_columns(const MatchMatrix& m, int64_t rounds) {
  std::fill_n(m.v(), m.columns, 1.0f);
  float even = 0;
  int64_t r = m.rows - 1;
  for (int64_t j = m.columns - 1; j >= 0; --j) {
    for (; r >= 0 && m.width(r) > j; --r) even += 1 / static_cast<float>(m.width(r));
    m.c()[j] = even;
  }
  for (int64_t round = 0; round < rounds; ++round) normalize(m);
}

class Sinkhorn : public ChoosingPattern {
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

  int64_t balance_floats(int64_t blocks) const override { return matrix_floats(rows_of(blocks), blocks); }
  void balance(const PatternPlace&, const BlockSummaries& summaries, std::span<float> added,
               std::span<float> work) const override {
    const int64_t blocks = std::ssize(added), rows = rows_of(blocks);
    const MatchMatrix m{.first = blocks - rows, .rows = rows, .columns = blocks, .work = work};
    fill(summaries, m);
    balance_columns(m, rounds_);
    write(m, added);
  }

 protected:
  int64_t most_rows() const { return rows_; }
  int64_t rounds() const { return rounds_; }
  float temperature() const { return temperature_; }

 private:
  int64_t rows_of(int64_t blocks) const { return std::max<int64_t>(0, std::min(rows_, blocks - 1)); }

  void fill(const BlockSummaries& summaries, const MatchMatrix& m) const {
    for (int64_t r = 0; r < m.rows; ++r) {
      const auto own = summaries[m.first + r];
      const float scale = 1 / (std::sqrt(static_cast<float>(own.size())) * temperature_);
      for (int64_t j = 0; j < m.width(r); ++j) m.x(r)[j] = scale * product(own, summaries[j]);
      exponentiate(m.x(r), m.width(r));
    }
  }

  // v has a free factor: its mean logarithm is 0. The newest block has no row yet, and stays as it is.
  void write(const MatchMatrix& m, std::span<float> added) const {
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

class SortedSinkhorn final : public Sinkhorn, public FittedPattern {
 public:
  SortedSinkhorn(const OptionValues& options, SortingNetwork network)
      : Sinkhorn(options), network_(std::move(network)) {}

  void add_query(const PatternPlace&, std::span<const float>, std::span<float>) const override {}  // the row is enough

  int64_t balance_floats(int64_t blocks) const override {
    return matrix_floats(std::min(most_rows(), blocks), blocks) + network_.dims + network_.hidden;
  }
  void balance(const PatternPlace& at, const BlockSummaries& summaries, std::span<float> added,
               std::span<float> work) const override {
    const int64_t blocks = std::ssize(added), rows = std::min(most_rows(), blocks);
    if (blocks == 0) return;
    const MatchMatrix m{.first = blocks - rows + 1, .rows = rows, .columns = blocks, .work = work};
    fill(at, summaries, m, work.subspan(static_cast<size_t>(matrix_floats(rows, blocks))));
    balance_columns(m, rounds());
    const float* own = m.x(rows - 1);
    for (int64_t j = 0; j < blocks; ++j) added[static_cast<size_t>(j)] = std::log(own[j]) + std::log(m.v()[j]);
  }

  Result<void> check_layers(std::span<const KvLayer> layers) const override {
    bool fits = layers.size() == network_.layers.size();
    for (size_t i = 0; fits && i < layers.size(); ++i)
      fits = layers[i].kv_heads == 0 ||
             (layers[i].kv_heads == network_.heads(static_cast<int64_t>(i)) && layers[i].head_dim == network_.dims);
    if (fits) return {};
    return Error::user("scorer: is of a model with other layers or heads");
  }
  std::string digest() const override { return network_.digest(); }

 private:
  // Each row from the sum of the keys before its block.
  void fill(const PatternPlace& at, const BlockSummaries& summaries, const MatchMatrix& m,
            std::span<float> work) const {
    const auto x = work.first(static_cast<size_t>(network_.dims)), hidden = work.subspan(x.size());
    std::ranges::fill(x, 0.0f);
    for (int64_t i = 0, r = 0; r < m.rows; ++i) {
      const auto keys = summaries[i];
      for (size_t d = 0; d < x.size(); ++d) x[d] += keys[d] * static_cast<float>(block());
      if (i + 1 < m.first) continue;
      const std::span<float> row(m.x(r), static_cast<size_t>(m.width(r)));
      network_.score(at.layer, at.head, x, row, hidden);
      for (float& score : row) score = std::isfinite(score) ? score / temperature() : 0.0f;
      exponentiate(row.data(), m.width(r++));
    }
  }

  SortingNetwork network_;
};

}  // namespace

Result<std::unique_ptr<AttentionPattern>> make_sinkhorn(const OptionValues& options) {
  const std::string& path = options.text("scorer");
  if (path.empty()) return std::unique_ptr<AttentionPattern>(std::make_unique<Sinkhorn>(options));
  MILLRACE_TRY(auto network, read_sorting_network(path));
  return std::unique_ptr<AttentionPattern>(std::make_unique<SortedSinkhorn>(options, std::move(network)));
}

}  // namespace millrace
