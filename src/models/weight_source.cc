#include "models/weight_source.h"

namespace millrace {

int64_t WeightPlaces::bytes_of(const std::vector<WeightRange>& ranges) {
  int64_t sum = 0;
  for (const WeightRange& range : ranges) sum += range.bytes;
  return sum;
}

int64_t WeightPlaces::Layer::bytes() const {
  int64_t sum = bytes_of(own);
  for (const auto& expert : experts) sum += bytes_of(expert);
  return sum;
}

int64_t WeightPlaces::other_bytes() const { return bytes_of(others); }

int64_t WeightPlaces::bytes() const {
  int64_t sum = other_bytes();
  for (const Layer& layer : layers) sum += layer.bytes();
  return sum;
}

Result<WeightLease> WeightSource::acquire(WeightUnit of) {
  if (auto begun = begin(of); !begun.ok()) return begun.error();
  return WeightLease(*this, of);
}

Result<int64_t> WeightSource::acquire_experts(int64_t layer, std::span<const int32_t> experts,
                                              std::span<const int32_t> guesses, std::vector<WeightLease>& leases) {
  MILLRACE_TRY(const int64_t begun, begin_experts(layer, experts, guesses));
  for (int32_t expert : experts.first(static_cast<size_t>(begun)))
    leases.push_back(WeightLease(*this, {layer, expert}));
  return begun;
}

Result<int64_t> WeightSource::begin_experts(int64_t layer, std::span<const int32_t> experts,
                                            std::span<const int32_t> /*guesses*/) {
  for (size_t i = 0; i < experts.size(); ++i) {
    auto begun = begin({layer, experts[i]});
    if (begun.ok()) continue;
    while (i > 0) end({layer, experts[--i]});
    return begun.error();
  }
  return std::ssize(experts);
}

}  // namespace millrace
