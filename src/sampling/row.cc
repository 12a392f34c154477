#include "sampling/row.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>

#include "sampling/estimate.h"
#include "sampling/order.h"

namespace millrace {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();
constexpr size_t kFew = 4096;  // up to this many tokens are gathered from a dense row instead of striking the others

float clamp_infinity(float logit) { return std::min(logit, FLT_MAX); }

}  // namespace

// In the compiler's vector types: GCC makes single comparisons of a loop over lanes.
float block_max(const float* x, size_t n) {
  using Four = float __attribute__((vector_size(16)));
  constexpr size_t kVectors = 4, kLanes = 4 * kVectors;
  const auto larger = [](Four a, Four b) { return a > b ? a : b; };  // b where a is NaN
  Four lanes[kVectors];
  for (Four& four : lanes) four = Four{} + kMasked;
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (size_t j = 0; j < kVectors; ++j) {
      Four next;
      std::memcpy(&next, x + i + 4 * j, sizeof(next));
      lanes[j] = larger(next, lanes[j]);
    }
  }
  const Four four = larger(larger(lanes[0], lanes[1]), larger(lanes[2], lanes[3]));
  float best = kMasked;
  for (size_t j = 0; j < 4; ++j) best = four[j] > best ? four[j] : best;
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

TokenId argmax(std::span<const float> logits) {
  constexpr size_t kBlock = 1024;
  float best = kMasked;
  size_t best_block = 0;
  for (size_t at = 0; at < logits.size(); at += kBlock) {
    float largest = block_max(logits.data() + at, std::min(kBlock, logits.size() - at));
    if (largest > best) {
      best = largest;
      best_block = at;
    }
  }
  if (best == kMasked) return -1;
  size_t at = best_block;
  while (logits[at] != best) ++at;
  return static_cast<TokenId>(at);
}

void largest_tokens(std::span<const float> logits, std::span<TokenId> out) {
  constexpr size_t kBlock = 256;
  size_t count = 0;
  const auto logit = [&](size_t place) { return logits[static_cast<size_t>(out[place])]; };
  for (size_t at = 0; at < logits.size() && !out.empty(); at += kBlock) {
    const size_t end = std::min(at + kBlock, logits.size());
    const float largest = block_max(logits.data() + at, end - at);
    if (largest == kMasked || (count == out.size() && !(largest > logit(count - 1)))) continue;
    for (size_t i = at; i < end; ++i) {
      if (!(logits[i] > kMasked) || (count == out.size() && !(logits[i] > logit(count - 1)))) continue;
      size_t place = count < out.size() ? count++ : count - 1;
      for (; place > 0 && logit(place - 1) < logits[i]; --place) out[place] = out[place - 1];
      out[place] = static_cast<TokenId>(i);
    }
  }
  std::fill(out.begin() + static_cast<ptrdiff_t>(count), out.end(), -1);
}

double Softmax::probability(float logit) const { return total > 0 ? std::exp(logit - max) / total : 0.0; }

void SamplingRow::reserve(int64_t vocab) {
  const auto tokens = static_cast<size_t>(vocab);
  list_.reserve(tokens + static_cast<size_t>(kSelectSlack));
  spare_.resize(tokens);
  weights_.reserve(tokens);
  blocks_.reserve(tokens / kEstimateBlock + 1);
  fastest_row_scan();  // makes its table
}

void SamplingRow::begin(std::span<float> logits, uint64_t seed, int64_t position) {
  logits_ = logits;
  seed_ = seed;
  position_ = position;
  list_.clear();
  sorted_ = 0;
  dense_ = true;
}

std::vector<Candidate>& SamplingRow::candidates() {
  if (dense_) keep_above(-std::numeric_limits<double>::infinity());
  return list_;
}

template <typename Keep>
void SamplingRow::keep_if(Keep keep) {
  size_t kept = 0;
  const auto filter = [&](size_t first, size_t end) {
    for (size_t i = first; i < end; ++i) {  // a store for each candidate, kept or not, is faster than a branch
      const Candidate candidate = list_[i];
      list_[kept] = candidate;
      kept += static_cast<size_t>(keep(candidate));
    }
  };
  const size_t sorted = sorted_;
  filter(0, sorted);
  sorted_ = kept;
  filter(sorted, list_.size());
  list_.resize(kept);
}

size_t SamplingRow::place_of(TokenId token) const {
  const auto found = std::ranges::find(list_, token, &Candidate::token);
  return static_cast<size_t>(found - list_.begin());
}

void SamplingRow::set_logit(size_t place, float logit) {
  sorted_ = 0;
  if (logit > kMasked) {
    list_[place].logit = clamp_infinity(logit);
  } else {
    list_.erase(list_.begin() + static_cast<ptrdiff_t>(place));
  }
}

void SamplingRow::keep_above(double threshold) {
  const double finite = std::max<double>(threshold, -FLT_MAX);
  if (!dense_) return keep_if([&](const Candidate& candidate) { return candidate.logit >= threshold; });
  dense_ = false;
  const auto least = static_cast<float>(finite);
  const float from = least < finite ? std::nextafter(least, FLT_MAX) : least;
  constexpr size_t kBlock = 1024;
  size_t kept = 0;
  for (size_t at = 0; at < logits_.size(); at += kBlock) {
    const size_t count = std::min(kBlock, logits_.size() - at);
    list_.resize(kept + count + kSelectSlack);
    kept += static_cast<size_t>(fastest_row_scan().select_from(logits_.data() + at, static_cast<int64_t>(count), from,
                                                               static_cast<int32_t>(at), list_.data() + kept));
  }
  list_.resize(kept);
}

void SamplingRow::keep_best(size_t k) {
  if (!dense_) {
    sort_prefix(k);
    truncate(k);
    return;
  }
  if (k >= logits_.size()) {
    candidates();
    sort_prefix(k);
    return;
  }
  dense_ = false;
  // Collects up to 2k that beat the k-th best so far, then halves. Ids ascend, so a later equal logit never wins. After
  // a while few blocks contain such a token, and the others cost one vector comparison each.
  constexpr size_t kBlock = 64;
  float bar = kMasked;
  for (size_t at = 0; at < logits_.size(); at += kBlock) {
    const size_t end = std::min(at + kBlock, logits_.size());
    if (!(block_max(logits_.data() + at, end - at) > bar)) continue;
    for (size_t i = at; i < end; ++i) {
      if (!(logits_[i] > bar)) continue;
      list_.push_back({clamp_infinity(logits_[i]), static_cast<TokenId>(i)});
      if (list_.size() < 2 * k) continue;
      std::nth_element(list_.begin(), list_.begin() + static_cast<ptrdiff_t>(k) - 1, list_.end(), better);
      list_.resize(k);
      bar = list_.back().logit;
    }
  }
  sort_prefix(k);
  truncate(k);
}

void SamplingRow::keep_tokens(std::span<const TokenId> tokens) {
  if (!dense_)
    return keep_if([&](const Candidate& candidate) { return std::ranges::binary_search(tokens, candidate.token); });
  dense_ = false;
  for (TokenId token : tokens) {
    if (token < 0 || static_cast<size_t>(token) >= logits_.size()) continue;
    float logit = logits_[static_cast<size_t>(token)];
    if (logit > kMasked) list_.push_back({clamp_infinity(logit), token});
  }
}

void SamplingRow::force(TokenId token) {
  if (!dense_) return keep_tokens(std::span(&token, 1));
  dense_ = false;
  if (token >= 0 && static_cast<size_t>(token) < logits_.size()) list_.push_back({0, token});
}

void SamplingRow::keep_bits(std::span<const uint64_t> bits) {
  const auto has = [&](TokenId token) {
    const auto word = static_cast<size_t>(token) / 64;
    return word < bits.size() && (bits[word] >> (token % 64) & 1) != 0;
  };
  if (!dense_) return keep_if([&](const Candidate& candidate) { return has(candidate.token); });
  size_t count = 0;
  for (const uint64_t word : bits) count += static_cast<size_t>(std::popcount(word));
  if (count > kFew) return strike(bits);
  dense_ = false;
  for (size_t word = 0; word < bits.size(); ++word) {
    for (uint64_t left = bits[word]; left != 0; left &= left - 1) {
      const size_t token = word * 64 + static_cast<size_t>(std::countr_zero(left));
      if (token < logits_.size() && logits_[token] > kMasked)
        list_.push_back({clamp_infinity(logits_[token]), static_cast<TokenId>(token)});
    }
  }
}

// 64 tokens at a time: strikes nothing, the struck ones one by one, or all except the kept ones.
void SamplingRow::strike(std::span<const uint64_t> bits) {
  for (size_t at = 0; at < logits_.size(); at += 64) {
    const uint64_t kept = at / 64 < bits.size() ? bits[at / 64] : 0;  // rows may be wider than the vocabulary
    const size_t count = std::min<size_t>(64, logits_.size() - at);
    float* row = logits_.data() + at;
    if (kept == ~uint64_t{0}) continue;
    if (std::popcount(kept) < 32) {
      float before[64];
      std::copy_n(row, count, before);
      std::fill_n(row, count, kMasked);
      for (uint64_t left = kept; left != 0; left &= left - 1)
        if (const auto token = static_cast<size_t>(std::countr_zero(left)); token < count) row[token] = before[token];
      continue;
    }
    for (uint64_t left = ~kept; left != 0; left &= left - 1)
      if (const auto struck = static_cast<size_t>(std::countr_zero(left)); struck < count) row[struck] = kMasked;
  }
}

void SamplingRow::keep_argmax() {
  if (dense_) {
    TokenId best = argmax(logits_);
    dense_ = false;
    if (best >= 0) list_.push_back({clamp_infinity(logits_[static_cast<size_t>(best)]), best});
    sorted_ = list_.size();
    return;
  }
  sort_prefix(1);
  truncate(1);
}

void SamplingRow::sort_prefix(size_t n) {
  n = std::min(n, list_.size());
  if (n <= sorted_) return;
  auto first = list_.begin() + static_cast<ptrdiff_t>(sorted_);
  auto last = list_.begin() + static_cast<ptrdiff_t>(n);
  if (last != list_.end()) std::nth_element(first, last, list_.end(), better);
  if (n - sorted_ < kRadixFrom) {
    std::sort(first, last, better);
  } else {
    if (spare_.size() < n) spare_.resize(n);
    radix_sort({first, last}, spare_);
  }
  sorted_ = n;
}

void SamplingRow::truncate(size_t n) {
  if (n < list_.size()) list_.resize(n);
  sorted_ = std::min(sorted_, list_.size());
}

void SamplingRow::drop_front(size_t n) {
  n = std::min(n, list_.size());
  list_.erase(list_.begin(), list_.begin() + static_cast<ptrdiff_t>(n));
  sorted_ -= std::min(sorted_, n);
}

float SamplingRow::max_logit() const {
  if (dense_) {
    TokenId best = argmax(logits_);
    return best < 0 ? kMasked : clamp_infinity(logits_[static_cast<size_t>(best)]);
  }
  if (sorted_ > 0) return list_.front().logit;
  float best = kMasked;
  for (const auto& candidate : list_) best = std::max(best, candidate.logit);
  return best;
}

void SamplingRow::scale(double temperature) {
  const double max = max_logit();
  if (dense_) {
    for (float& logit : logits_) logit = static_cast<float>((clamp_infinity(logit) - max) / temperature);
  } else {
    for (Candidate& candidate : list_) candidate.logit = static_cast<float>((candidate.logit - max) / temperature);
  }
}

Softmax SamplingRow::softmax() {
  Softmax out;
  const auto& list = candidates();
  if (list.empty()) return out;
  out.max = max_logit();
  weights_.clear();
  for (const auto& candidate : list) {
    weights_.push_back(std::exp(candidate.logit - out.max));
    out.total += weights_.back();
  }
  return out;
}

}  // namespace millrace
