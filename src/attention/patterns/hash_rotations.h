// Hashes of angular LSH (Andoni et al., 2015), as Reformer uses them: x is rotated by random vectors r_i, and its
// bucket is the index of the largest of [x . r_i; -x . r_i]. Vectors with a small angle between them are often in one
// bucket.
#pragma once

#include <array>
#include <cmath>
#include <numbers>
#include <span>
#include <vector>

#include "attention/dynamic_pattern.h"
#include "base/philox.h"

namespace millrace {

inline float lane_product(const float* r, std::span<const float> x) {
  std::array<float, 8> sums = {};
  size_t d = 0;
  for (; d + 8 <= x.size(); d += 8)
    for (size_t l = 0; l < 8; ++l) sums[l] += x[d + l] * r[d + l];
  for (; d < x.size(); ++d) sums[d % 8] += x[d] * r[d];
  float sum = 0;
  for (float s : sums) sum += s;
  return sum;
}

// Random directions of kMaxDynamicDim independent normal numbers each; a vector with fewer dims uses the first ones.
class RandomDirections {
 public:
  RandomDirections(int64_t count, uint64_t seed) : values_(static_cast<size_t>(count * kMaxDynamicDim)) {
    for (size_t i = 0; i < values_.size(); i += 2) {  // Box-Muller
      const double u = 1 - philox_uniform(seed, 0, i), v = philox_uniform(seed, 1, i);
      const double radius = std::sqrt(-2 * std::log(u)), angle = 2 * std::numbers::pi * v;
      values_[i] = static_cast<float>(radius * std::cos(angle));
      values_[i + 1] = static_cast<float>(radius * std::sin(angle));
    }
  }
  std::span<const float> direction(int64_t index) const {
    return std::span(values_).subspan(static_cast<size_t>(index * kMaxDynamicDim), kMaxDynamicDim);
  }
  float product(int64_t index, std::span<const float> x) const { return lane_product(direction(index).data(), x); }

 private:
  std::vector<float> values_;
};

class HashRotations {
 public:
  // `buckets` is even.
  HashRotations(int64_t hashes, int64_t buckets, uint64_t seed)
      : hashes_(hashes), buckets_(buckets), directions_(hashes * buckets / 2, seed) {}

  int64_t hashes() const { return hashes_; }
  int64_t buckets() const { return buckets_; }
  int64_t bucket(int64_t hash, std::span<const float> x) const {
    const int64_t half = buckets_ / 2;
    int64_t best = 0;
    float most = -1;
    for (int64_t i = 0; i < half; ++i) {
      const float product = directions_.product(hash * half + i, x);
      if (std::abs(product) <= most) continue;
      most = std::abs(product);
      best = product > 0 ? i : half + i;
    }
    return best;
  }
  // Adds 1 to the count of x's bucket, for every hash. `counts`: [hashes, buckets].
  void count(std::span<const float> x, std::span<float> counts) const {
    for (int64_t h = 0; h < hashes_; ++h) counts[static_cast<size_t>(h * buckets_ + bucket(h, x))] += 1;
  }

 private:
  int64_t hashes_, buckets_;
  RandomDirections directions_;
};

inline Result<HashRotations> make_hash_rotations(int64_t hashes, const OptionValues& options) {
  const int64_t buckets = options.integer("buckets");
  if (buckets % 2 != 0) return Error::user("buckets: must be even");
  return HashRotations(hashes, buckets, static_cast<uint64_t>(options.integer("seed")));
}

}  // namespace millrace
