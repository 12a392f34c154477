#include "kv/gated_tokens.h"

#include <algorithm>

namespace millrace {

void GatedTokens::reserve(int64_t stored, TokenGate gate, int64_t dims) {
  const auto most = static_cast<size_t>(stored);
  ends_.reserve(most);
  staying_.reserve(most);
  if (gate == TokenGate::selection) weights_.reserve(most);
  if (gate == TokenGate::pairs) rows_.reserve(most * static_cast<size_t>(dims));
}

void GatedTokens::begin(int64_t first, int64_t slot, int64_t count, TokenGate gate, int64_t dims) {
  const auto before = static_cast<size_t>(slot), all = static_cast<size_t>(slot + count);
  ends_.resize(before, kStays);
  for (int32_t& end : ends_)
    if (end >= first) end = kStays;
  ends_.resize(all, kStays);
  if (gate == TokenGate::selection) {
    weights_.resize(before);
    weights_.resize(all, 1.0f);
  }
  dims_ = gate == TokenGate::pairs ? dims : 0;
  rows_.resize(all * static_cast<size_t>(dims_));
}

std::span<const int32_t> GatedTokens::staying() {
  staying_.clear();
  for (size_t slot = 0; slot < ends_.size(); ++slot)
    if (ends_[slot] == kStays) staying_.push_back(static_cast<int32_t>(slot));
  return staying_;
}

void GatedTokens::keep_staying() {
  const auto dims = static_cast<size_t>(dims_);
  size_t to = 0;
  for (size_t slot = 0; slot < ends_.size(); ++slot) {
    if (ends_[slot] != kStays) continue;
    if (to != slot && dims > 0) std::copy_n(rows_.data() + slot * dims, dims, rows_.data() + to * dims);
    if (!weights_.empty()) weights_[to] = weights_[slot];
    ++to;
  }
  ends_.assign(to, kStays);
  rows_.resize(to * dims);
  if (!weights_.empty()) weights_.resize(to);
}

void GatedTokens::clear() {
  ends_.clear();
  rows_.clear();
  weights_.clear();
}

}  // namespace millrace
