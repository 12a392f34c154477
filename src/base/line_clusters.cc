#include "base/line_clusters.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace millrace {
namespace {

// Numbers in ascending order, with the sums before each that give the cost of an interval at once.
struct SortedLine {
  std::vector<double> weight, moment, square;  // [n + 1], sums of w, w v, w v^2

  SortedLine(std::span<const float> values, std::span<const double> costs) {
    std::vector<int32_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    const auto value = [&](int32_t i) { return values[static_cast<size_t>(i)]; };
    std::ranges::sort(order, [&](int32_t a, int32_t b) { return value(a) != value(b) ? value(a) < value(b) : a < b; });
    weight.push_back(0), moment.push_back(0), square.push_back(0);
    for (int32_t i : order) {
      const double v = value(i), w = costs[static_cast<size_t>(i)];
      weight.push_back(weight.back() + w);
      moment.push_back(moment.back() + w * v);
      square.push_back(square.back() + w * v * v);
    }
  }

  double mean(size_t begin, size_t end) const { return (moment[end] - moment[begin]) / (weight[end] - weight[begin]); }
  double cost(size_t begin, size_t end) const {
    const double sum = moment[end] - moment[begin];
    return square[end] - square[begin] - sum * sum / (weight[end] - weight[begin]);
  }
};

class Division {
 public:
  Division(const SortedLine& line, size_t count)
      : line_(line), size_(line.weight.size() - 1), before_(size_ + 1), now_(size_ + 1) {
    begins_.assign(count, std::vector<int32_t>(size_ + 1));
    for (size_t end = 1; end <= size_; ++end) now_[end] = line.cost(0, end);
    for (size_t cluster = 1; cluster < count; ++cluster) {
      before_.swap(now_);
      fill(begins_[cluster], cluster + 1, size_, cluster, size_ - 1);
    }
  }

  std::vector<double> means() const {
    std::vector<double> out(begins_.size());
    size_t end = size_;
    for (size_t cluster = begins_.size(); cluster-- > 0;) {
      const auto begin = static_cast<size_t>(begins_[cluster][end]);
      out[cluster] = line_.mean(begin, end);
      end = begin;
    }
    return out;
  }

 private:
  // now_[end] for ends [low, high], whose last cluster begins in [first, last].
  void fill(std::vector<int32_t>& begins, size_t low, size_t high, size_t first, size_t last) {
    if (low > high) return;
    const size_t end = low + (high - low) / 2;
    double least = std::numeric_limits<double>::infinity();
    size_t best = first;
    for (size_t begin = first; begin <= std::min(last, end - 1); ++begin) {
      const double cost = before_[begin] + line_.cost(begin, end);
      if (cost < least) least = cost, best = begin;
    }
    now_[end] = least;
    begins[end] = static_cast<int32_t>(best);
    fill(begins, low, end - 1, first, best);
    fill(begins, end + 1, high, best, last);
  }

  const SortedLine& line_;
  size_t size_;
  std::vector<double> before_, now_;          // least cost of the first numbers up to an end
  std::vector<std::vector<int32_t>> begins_;  // of each cluster if it is the last one up to an end
};

}  // namespace

std::vector<double> cluster_means(std::span<const float> values, std::span<const double> costs, int64_t count) {
  const int64_t used = std::min(count, std::ssize(values));
  if (used == 0) return std::vector<double>(static_cast<size_t>(count));
  std::vector<double> means = Division(SortedLine(values, costs), static_cast<size_t>(used)).means();
  // Equal numbers in several clusters have means that differ by the rounding of sums.
  for (size_t i = 1; i < means.size(); ++i) means[i] = std::max(means[i], means[i - 1]);
  means.resize(static_cast<size_t>(count), means.back());
  return means;
}

}  // namespace millrace
