// RPTQ (Yuan et al., 2023, "RPTQ: Reorder-based Post-training Quantization for Large Language Models"): channels whose
// inputs have similar ranges are put side by side, so that each cluster of them can have a scale of its own. k-means of
// the pairs (max, min) finds the clusters. The paper's scales and zeros are fixed by the calibration; here a cluster
// has one scale for each token, and no zero.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "compress/factories.h"
#include "compress/output/preview.h"
#include "compress/pass_options.h"

namespace millrace {
namespace {

constexpr int kClusterRounds = 50;

struct InputRange {
  double least = 0, most = 0;
};

double range_distance(const InputRange& a, const InputRange& b) {
  return (a.least - b.least) * (a.least - b.least) + (a.most - b.most) * (a.most - b.most);
}

// The first of the nearest centers.
size_t nearest_center(const std::vector<InputRange>& centers, const InputRange& one) {
  size_t best = 0;
  for (size_t i = 1; i < centers.size(); ++i)
    if (range_distance(centers[i], one) < range_distance(centers[best], one)) best = i;
  return best;
}

// Of each channel. Centers start at channels evenly spaced by the width of their ranges, narrowest first.
std::vector<size_t> clusters_of(const std::vector<InputRange>& ranges, int64_t count) {
  std::vector<size_t> order(ranges.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t c) { return ranges[c].most - ranges[c].least; });
  std::vector<InputRange> centers;
  for (int64_t k = 0; k < count; ++k)
    centers.push_back(
        ranges[order[(2 * static_cast<size_t>(k) + 1) * order.size() / (2 * static_cast<size_t>(count))]]);
  std::vector<size_t> own(ranges.size());
  for (int i = 0; i < kClusterRounds; ++i) {
    bool moved = i == 0;
    for (size_t c = 0; c < ranges.size(); ++c) {
      const size_t next = nearest_center(centers, ranges[c]);
      moved |= next != own[c];
      own[c] = next;
    }
    if (!moved) break;
    for (size_t k = 0; k < centers.size(); ++k) {
      InputRange sum;
      double members = 0;
      for (size_t c = 0; c < ranges.size(); ++c)
        if (own[c] == k) sum.least += ranges[c].least, sum.most += ranges[c].most, ++members;
      if (members > 0) centers[k] = {sum.least / members, sum.most / members};
    }
  }
  return own;
}

class Rptq final : public Pass {
 public:
  Rptq(int64_t clusters, InputFormat inputs, const Format* format)
      : clusters_(clusters), inputs_(inputs), format_(format) {}

  uint32_t needs() const override { return kInputRanges; }
  std::string format() const override { return format_ ? std::string(format_->name) : ""; }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    if (std::string why = keeps_its_inputs(matrix); !why.empty()) return preview_left(std::move(why));
    preview_order(matrix);
    for (int64_t k = 0; k < std::min(clusters_, matrix.cols); ++k)
      matrix.parts.input.rounding.push_back(inputs_.segment(1));
    return PassPreview{"reordered", "", true};  // clusters may be empty
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (const std::string why = keeps_its_inputs(matrix); !why.empty()) return PassRow{"left", why, {}};
    std::vector<InputRange> ranges;
    for (size_t c = 0; c < statistics.least.size(); ++c) ranges.push_back({statistics.least[c], statistics.most[c]});
    const int64_t count = std::min(clusters_, matrix.cols);
    const std::vector<size_t> own = clusters_of(ranges, count);
    InputChange& change = matrix.parts.input;
    for (int64_t k = 0; k < count; ++k) {
      const size_t before = change.order.size();
      for (size_t c = 0; c < own.size(); ++c)
        if (own[c] == static_cast<size_t>(k)) change.order.push_back(static_cast<int32_t>(c));
      if (const auto members = static_cast<int64_t>(change.order.size() - before); members > 0)
        change.rounding.push_back(inputs_.segment(members));
    }
    store_rows(matrix, pool);
    return PassRow{"reordered", "", {{"clusters", static_cast<double>(change.rounding.size())}}};
  }

 private:
  int64_t clusters_;
  InputFormat inputs_;
  const Format* format_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_rptq_pass(const OptionValues& options) {
  MILLRACE_TRY(const InputFormat inputs, input_format(options));
  MILLRACE_TRY(const Format* format, stored_format(options));
  if (!inputs.rounds()) return Error::user("inputs 'none': there is nothing to have scales for");
  return std::unique_ptr<Pass>(std::make_unique<Rptq>(options.integer("clusters"), inputs, format));
}

}  // namespace millrace
