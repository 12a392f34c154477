// WeightSource: makes a layer's weights ready when a pass needs them. One file each under weight_sources/ and one line
// in weight_sources/builtin.cc. With the first member, `resident`, all weights are in memory all the time, and there is
// no object: a pass pays one check per layer. Thread-safe: several engines may run passes of one model.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/registry.h"
#include "tensor/mapped_file.h"

namespace millrace {

// Bytes [begin, begin + bytes) of a file.
struct WeightRange {
  int64_t begin = 0;
  int64_t bytes = 0;
};

// The weights that a pass reads together: those of a layer without its routed experts, or those of one expert.
struct WeightUnit {
  static constexpr int32_t kNoExpert = -1;

  int64_t layer = 0;
  int32_t expert = kNoExpert;
};

// Where a model's packed weights are in a packed cache.
struct WeightPlaces {
  struct Layer {
    std::vector<WeightRange> own;                   // all but the routed experts
    std::vector<std::vector<WeightRange>> experts;  // by expert
    int64_t bytes() const;                          // bytes of all weights

    const std::vector<WeightRange>& ranges(int32_t expert) const {
      return expert == WeightUnit::kNoExpert ? own : experts[static_cast<size_t>(expert)];
    }
  };
  std::vector<Layer> layers;
  int64_t others = 0;  // bytes of no layer, the head's

  const std::vector<WeightRange>& ranges(WeightUnit of) const {
    return layers[static_cast<size_t>(of.layer)].ranges(of.expert);
  }
};

class WeightSource;

// Keeps the weights of a layer, or of one of its experts, readable at their addresses while it lives.
class WeightLease {
 public:
  WeightLease() = default;  // for weights that are always in memory
  WeightLease(WeightLease&& other) noexcept : source_(std::exchange(other.source_, nullptr)), of_(other.of_) {}
  WeightLease& operator=(WeightLease&& other) noexcept {
    std::swap(source_, other.source_);
    std::swap(of_, other.of_);
    return *this;
  }
  ~WeightLease();

 private:
  friend class WeightSource;
  WeightLease(WeightSource& source, WeightUnit of) : source_(&source), of_(of) {}

  WeightSource* source_ = nullptr;
  WeightUnit of_;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Returns when the weights can be read. They stay until the last lease on them ends.
  WeightLease acquire(WeightUnit of) {
    begin(of);
    return {*this, of};
  }
  // Starts to make weights ready that will be read soon. Does not wait.
  virtual void prefetch(WeightUnit of) = 0;

 private:
  friend class WeightLease;
  // Called for every lease, on the thread that runs the pass. Several passes may hold leases on the same weights.
  virtual void begin(WeightUnit of) = 0;
  virtual void end(WeightUnit of) = 0;
};

inline WeightLease::~WeightLease() {
  if (source_) source_->end(of_);
}

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
