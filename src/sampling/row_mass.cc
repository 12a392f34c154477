// The operations of SamplingRow that estimate sums over many candidates (estimate.h).
#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>

#include "sampling/estimate.h"
#include "sampling/row.h"

namespace millrace {

// The logits of `count` candidates from `first` on, in order: the row's own, or copied to `copy`.
const float* SamplingRow::block(size_t first, size_t count, float* copy) const {
  if (dense_) return logits_.data() + first;
  for (size_t i = 0; i < count; ++i) copy[i] = list_[first + i].logit;
  return copy;
}

double SamplingRow::estimate_blocks(double max, Estimate estimate) {
  const RowScan& scan = fastest_row_scan();
  const size_t count = dense_ ? logits_.size() : list_.size();
  double total = 0;
  float copy[kEstimateBlock];
  blocks_.clear();
  for (size_t at = 0; at < count; at += kEstimateBlock) {
    const size_t part = std::min(kEstimateBlock, count - at);
    const float* logits = block(at, part, copy);
    const auto size = static_cast<int64_t>(part);
    blocks_.push_back(estimate == Estimate::coarse ? scan.exp_sum_coarse(logits, static_cast<float>(max), size)
                                                   : scan.exp_sum(logits, max, size));
    total += blocks_.back();
  }
  return total;
}

bool SamplingRow::keep_nucleus(double p) {
  if (!dense_ || logits_.size() < kEstimateFrom) return false;
  const double max = max_logit();
  if (max < -FLT_MAX) return false;
  double total = estimate_blocks(max, Estimate::coarse);
  const double fine = estimate_error(Estimate::fine, logits_.size());  // of the sums in mass_prefix()
  double error = (estimate_error(Estimate::coarse, logits_.size()) + fine) * total;
  // Tokens below the threshold have at most half of the mass that the nucleus leaves out.
  keep_above(max + std::log(0.5 * (1 - p) * (total - error) / static_cast<double>(logits_.size())));
  keep_above(nucleus_floor(max, p * total + error));
  sort_prefix(list_.size());
  size_t kept = mass_prefix(max, p * total, error);
  if (kept == 0) {
    dense_ = true;
    total = estimate_blocks(max, Estimate::fine);
    error = 2 * fine * total;
    dense_ = false;
    kept = mass_prefix(max, p * total, error);
  }
  if (kept > 0) {
    truncate(kept);
  } else {  // the row as it was
    list_.clear();
    sorted_ = 0;
    dense_ = true;
  }
  return kept > 0;
}

// A logit so low that the candidates of the list that are not below it have at least this mass. They are counted by
// logit, and each class has at least the mass of as many of its lowest logits.
double SamplingRow::nucleus_floor(double max, double mass) const {
  constexpr int kClasses = 4096;
  constexpr double kWidth = 1.0 / 128;
  std::array<uint32_t, kClasses> counts{};
  const auto top = static_cast<float>(max), scale = static_cast<float>(1 / kWidth);
  for (const Candidate& candidate : list_) {
    const float below = (top - candidate.logit) * scale;
    if (below < kClasses) ++counts[static_cast<size_t>(below)];
  }
  const double ratio = std::exp(-kWidth);
  double lowest = ratio * (1 - 1e-5), sum = 0;  // of the class; the place of a logit in its class is rounded
  for (int i = 0; i < kClasses; ++i, lowest *= ratio) {
    sum += counts[static_cast<size_t>(i)] * lowest;
    if (sum >= mass) return max - (i + 1) * kWidth - 1e-5;
  }
  return -std::numeric_limits<double>::infinity();
}

// The smallest number of best candidates of the sorted list whose sum reaches `mass`; 0 if that is not clear.
size_t SamplingRow::mass_prefix(double max, double mass, double error) const {
  const auto exp_sum = fastest_row_scan().exp_sum;
  float copy[kEstimateBlock];
  double sum = 0;
  for (size_t at = 0; at < list_.size();) {
    const size_t part = std::min(kEstimateBlock, list_.size() - at);
    const double whole = exp_sum(block(at, part, copy), max, static_cast<int64_t>(part));
    if (sum + whole < mass - error) {
      sum += whole;
      at += part;
      continue;
    }
    for (const size_t end = at + part; at < end; ++at) {
      sum += std::exp(list_[at].logit - max);
      if (sum >= mass - error) return sum > mass + error ? at + 1 : 0;
    }
  }
  return 0;
}

TokenId SamplingRow::draw_estimated(double uniform) {
  const size_t count = dense_ ? logits_.size() : list_.size();
  if (count < kEstimateFrom) return -1;
  const double max = max_logit();
  if (max < -FLT_MAX) return -1;
  for (const Estimate estimate : {Estimate::coarse, Estimate::fine}) {
    const double total = estimate_blocks(max, estimate);
    const TokenId token = draw_from_blocks(max, uniform * total, 2 * estimate_error(estimate, count) * total);
    if (token >= 0) return token;
  }
  return -1;
}

// The candidate at which the sum of the blocks, and within a block of its candidates, exceeds `target`; -1 if that is
// not clear.
TokenId SamplingRow::draw_from_blocks(double max, double target, double error) const {
  const size_t count = dense_ ? logits_.size() : list_.size();
  double sum = 0;
  size_t at = 0;
  for (const double whole : blocks_) {
    if (sum + whole >= target - error) break;
    sum += whole;
    at += kEstimateBlock;
  }
  float copy[kEstimateBlock];
  const size_t part = at < count ? std::min(kEstimateBlock, count - at) : 0;
  const float* logits = part > 0 ? block(at, part, copy) : copy;
  for (size_t i = 0; i < part; ++i) {
    if (!std::isnan(logits[i])) sum += std::exp(std::min(logits[i], FLT_MAX) - max);
    if (sum < target - error) continue;
    if (sum <= target + error) return -1;
    return dense_ ? static_cast<TokenId>(at + i) : list_[at + i].token;
  }
  return -1;
}

}  // namespace millrace
