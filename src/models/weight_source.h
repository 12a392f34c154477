// WeightSource: makes a layer's weights ready when a pass needs them. One file each under weight_sources/ and one line
// in weight_sources/builtin.cc. With the first member, `resident`, all weights are in memory all the time, and there is
// no object: a pass pays one check per layer. Thread-safe: several engines may run passes of one model.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/registry.h"
#include "tensor/mapped_file.h"

namespace millrace {

// Bytes [begin, begin + bytes) of a file.
struct WeightRange {
  int64_t begin = 0;
  int64_t bytes = 0;
};

// Where a model's packed weights are in a packed cache.
struct WeightPlaces {
  struct Layer {
    std::vector<WeightRange> own;                   // all but the routed experts
    std::vector<std::vector<WeightRange>> experts;  // by expert
    int64_t bytes() const;                          // bytes of all weights
  };
  std::vector<Layer> layers;
  int64_t others = 0;  // bytes of no layer, the head's
};

class WeightSource {
 public:
  static constexpr int32_t kNoExpert = -1;

  virtual ~WeightSource() = default;
  // Called before the weights of the layer (except its routed experts), or of one of its experts, are read. Weights of
  // the layer that were acquired before are no longer read.
  virtual void acquire(int64_t layer, int32_t expert = kNoExpert) = 0;
  // Announces that these weights will be read soon.
  virtual void prefetch(int64_t layer, int32_t expert = kNoExpert) = 0;
};

struct WeightSourceMember {
  // False: all weights are in memory; the other functions are null.
  bool from_file = false;
  // Memory for weights at any time, at most.
  int64_t (*memory)(const WeightPlaces& places, const OptionValues& options) = nullptr;
  std::unique_ptr<WeightSource> (*make)(std::shared_ptr<const MappedFile> file, WeightPlaces places,
                                        const OptionValues& options) = nullptr;
};

const Registry<WeightSourceMember>& weight_sources();

}  // namespace millrace
