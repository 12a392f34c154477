// LabRandom: the random numbers for one generated item. They depend only on (seed, item, attempt), on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/philox.h"

namespace millrace {

class LabRandom {
 public:
  // `item`: identifies the task and the number of the item. Each attempt begins at a different place of the item's
  // random stream.
  LabRandom(uint64_t seed, uint64_t item, uint64_t attempt) : seed_(seed), item_(item), next_(attempt << 32) {}

  double uniform() { return philox_uniform(seed_, item_, next_++); }  // [0, 1)
  bool chance(double probability) { return uniform() < probability; }
  int64_t below(int64_t end) { return static_cast<int64_t>(uniform() * static_cast<double>(end)); }
  int64_t between(int64_t least, int64_t most) { return least + below(most - least + 1); }

  template <typename T>
  const T& pick(std::span<const T> from) {
    return from[static_cast<size_t>(below(std::ssize(from)))];
  }
  template <typename T>
  const T& pick(const std::vector<T>& from) {
    return pick(std::span<const T>(from));
  }
  template <typename T>
  void shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i)
      std::swap(values[i - 1], values[static_cast<size_t>(below(static_cast<int64_t>(i)))]);
  }
  // Returns `count` different elements in random order; all elements if there are fewer.
  template <typename T>
  std::vector<T> sample(std::span<const T> from, int64_t count) {
    std::vector<T> all(from.begin(), from.end());
    shuffle(all);
    if (count < std::ssize(all)) all.resize(static_cast<size_t>(count));
    return all;
  }

 private:
  uint64_t seed_, item_, next_;
};

}  // namespace millrace
