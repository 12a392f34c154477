// ItemDraws: the random draws for one item of a load and one purpose, such as the gap or the length of request i. The
// generator is counter-based, so draws for one purpose do not depend on others: changing the rate does not change the
// lengths.
#pragma once

#include <cmath>
#include <numbers>

#include "base/philox.h"

namespace millrace {

class ItemDraws {
 public:
  enum class Purpose : uint64_t {
    arrivals = 1,
    prompt_length,
    output_length,
    prefix_group,
    tenant,
    routing,
    documents
  };
  ItemDraws(uint64_t seed, Purpose purpose, uint64_t item)
      : seed_(seed), stream_(static_cast<uint64_t>(purpose) << 56 ^ item) {}

  double uniform() { return philox_uniform(seed_, stream_, index_++); }  // [0, 1)
  double exponential() { return -std::log1p(-uniform()); }               // mean 1
  double normal() {                                                      // Box and Muller, 1958
    const double radius = std::sqrt(2 * exponential());
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  // Draws from the gamma distribution with mean `shape`. Marsaglia and Tsang, 2000, "A Simple Method for Generating
  // Gamma Variables".
  double gamma(double shape) {
    if (shape < 1) {
      const double lift = std::pow(1 - uniform(), 1 / shape);
      return gamma(shape + 1) * lift;
    }
    const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    for (;;) {
      const double x = normal(), v = std::pow(1 + c * x, 3);
      if (v > 0 && std::log1p(-uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
    }
  }

 private:
  uint64_t seed_, stream_, index_ = 0;
};

}  // namespace millrace
