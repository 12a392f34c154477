#include "evaluate/skip_search.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "base/philox.h"

namespace millrace {
namespace {

constexpr int64_t kRandomFirst = 4;     // of so many trials, one is random at the beginning
constexpr int64_t kCandidates = 256;    // random ones, and as many near the best trials
constexpr int64_t kNear = 8;            // the best trials, whose neighbours are candidates
constexpr int64_t kMaxFlips = 3;        // entries in which a neighbour differs
constexpr double kNoise = 1e-3;         // of the values, which are scaled to a variance of 1
constexpr int64_t kTriesOfNewOne = 64;  // random vectors, until one is new

// Random numbers in order.
class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  double uniform() { return philox_uniform(seed_, 0x5e1f, next_++); }
  int64_t below(int64_t n) { return std::min(n - 1, static_cast<int64_t>(uniform() * static_cast<double>(n))); }

 private:
  uint64_t seed_, next_ = 0;
};

SkipVector random_vector(int64_t size, Draws& draws) {
  SkipVector out(static_cast<size_t>(size));
  const double share = draws.uniform();
  for (uint8_t& one : out) one = draws.uniform() < share;
  return out;
}

SkipVector neighbour(SkipVector of, Draws& draws) {
  for (int64_t flips = 1 + draws.below(kMaxFlips); flips > 0; --flips)
    of[static_cast<size_t>(draws.below(std::ssize(of)))] ^= 1;
  return of;
}

// A Gaussian process whose covariance falls with the number of entries that differ. The Cholesky factor of the
// covariance of all observations grows by a row with each one.
class SkipProcess {
 public:
  explicit SkipProcess(int64_t size) : scale_(std::max(1.0, static_cast<double>(size) / 4)) {}

  void add(const SkipTrial& trial) {
    std::vector<double> row = solve(covariances(trial.skipped));
    double left = 1 + kNoise;
    for (const double one : row) left -= one * one;
    row.push_back(std::sqrt(std::max(left, kNoise)));
    factor_.push_back(std::move(row));
    trials_.push_back(trial);
    scale_values();
  }

  // How much better than the best value so far the vector is expected to be; 0 or more.
  double expected_improvement(const SkipVector& x) const {
    const std::vector<double> v = solve(covariances(x));
    double mean = 0, variance = 1;
    for (size_t i = 0; i < v.size(); ++i) mean += v[i] * whitened_[i], variance -= v[i] * v[i];
    const double spread = std::sqrt(std::max(variance, 1e-12));
    const double z = (mean - best_) / spread;
    const double density = std::exp(-0.5 * z * z) / std::sqrt(2 * std::numbers::pi);
    return std::max(0.0, (mean - best_) * 0.5 * std::erfc(-z / std::numbers::sqrt2) + spread * density);
  }

 private:
  std::vector<double> covariances(const SkipVector& x) const {
    std::vector<double> out;
    for (const SkipTrial& trial : trials_) {
      int64_t differ = 0;
      for (size_t i = 0; i < x.size(); ++i) differ += x[i] != trial.skipped[i];
      out.push_back(std::exp(-static_cast<double>(differ) / scale_));
    }
    return out;
  }

  // y with factor * y = b.
  std::vector<double> solve(std::vector<double> b) const {
    for (size_t i = 0; i < factor_.size(); ++i) {
      for (size_t j = 0; j < i; ++j) b[i] -= factor_[i][j] * b[j];
      b[i] /= factor_[i][i];
    }
    return b;
  }

  void scale_values() {
    double sum = 0, squares = 0;
    for (const SkipTrial& trial : trials_) sum += trial.value, squares += trial.value * trial.value;
    const double n = static_cast<double>(trials_.size()), mean = sum / n;
    const double deviation = std::sqrt(std::max(squares / n - mean * mean, 1e-12));
    std::vector<double> scaled;
    for (const SkipTrial& trial : trials_) scaled.push_back((trial.value - mean) / deviation);
    best_ = std::ranges::max(scaled);
    whitened_ = solve(std::move(scaled));
  }

  double scale_;
  std::vector<SkipTrial> trials_;
  std::vector<std::vector<double>> factor_;  // lower triangle
  std::vector<double> whitened_;             // factor^-1 of the scaled values
  double best_ = 0;
};

class SkipSearch {
 public:
  SkipSearch(int64_t size, const SkipSearchOptions& options) : size_(size), options_(options), draws_(options.seed) {}

  bool is_new(const SkipVector& x) const { return !seen_.contains(x); }

  // Empty: none was found.
  SkipVector next(const SkipProcess& process) {
    const auto tried = std::ssize(trials_);
    if (tried < std::ssize(options_.first) && is_new(options_.first[static_cast<size_t>(tried)]))
      return options_.first[static_cast<size_t>(tried)];
    if (!options_.bayes || tried < std::max<int64_t>(2, options_.trials / kRandomFirst)) return new_random();
    return most_promising(process);
  }

  void add(SkipTrial trial) {
    seen_.insert(trial.skipped);
    trials_.push_back(std::move(trial));
  }

  const std::vector<SkipTrial>& trials() const { return trials_; }

 private:
  SkipVector new_random() {
    for (int64_t i = 0; i < kTriesOfNewOne; ++i)
      if (SkipVector x = random_vector(size_, draws_); is_new(x)) return x;
    return {};
  }

  SkipVector most_promising(const SkipProcess& process) {
    std::vector<const SkipTrial*> best;
    for (const SkipTrial& trial : trials_) best.push_back(&trial);
    std::ranges::stable_sort(best, [](const auto* a, const auto* b) { return a->value > b->value; });
    best.resize(std::min<size_t>(best.size(), kNear));
    SkipVector chosen;
    double most = -1;
    for (int64_t i = 0; i < 2 * kCandidates; ++i) {
      SkipVector x = i % 2 ? random_vector(size_, draws_)
                           : neighbour(best[static_cast<size_t>(draws_.below(std::ssize(best)))]->skipped, draws_);
      if (!is_new(x)) continue;
      const double gain = process.expected_improvement(x);
      if (gain > most) most = gain, chosen = std::move(x);
    }
    return chosen;
  }

  int64_t size_;
  const SkipSearchOptions& options_;
  Draws draws_;
  std::set<SkipVector> seen_;
  std::vector<SkipTrial> trials_;
};

}  // namespace

Result<SkipTrial> search_skips(int64_t size, const SkipSearchOptions& options,
                               const std::function<Result<double>(const SkipVector&)>& value) {
  SkipSearch search(size, options);
  SkipProcess process(size);
  SkipTrial best;
  while (std::ssize(search.trials()) < options.trials) {
    SkipTrial trial{search.next(process), 0};
    if (trial.skipped.empty()) break;
    MILLRACE_TRY(trial.value, value(trial.skipped));
    if (best.skipped.empty() || trial.value > best.value) best = trial;
    if (options.bayes) process.add(trial);
    search.add(std::move(trial));
  }
  return best;
}

}  // namespace millrace
