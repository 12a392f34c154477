// Layers are pages of the mapped packed cache: the system starts reading them some layers ahead, and a layer's pages
// leave this process's memory when the pass has gone on to the next one. So a model may be larger than the memory
// budget. What was released is still in the system's page cache while there is room for it; of a mixture of experts
// only the experts that tokens chose are read. Holds no state of a pass, so several passes at once only read some pages
// twice.
#include <algorithm>

#include "models/weight_sources/records.h"

namespace millrace {
namespace {

class MappedWeights final : public WeightSource {
 public:
  MappedWeights(std::shared_ptr<const MappedFile> file, WeightPlaces places, int64_t ahead, int64_t pinned)
      : file_(std::move(file)), places_(std::move(places)), ahead_(ahead), pinned_(pinned) {}

  void acquire(int64_t layer, int32_t expert) override {
    if (expert != kNoExpert) return prefetch(layer, expert);
    for (int64_t i = 1; i <= std::min(ahead_, layers() - 1); ++i) prefetch((layer + i) % layers(), kNoExpert);
    const int64_t before = (layer + layers() - 1) % layers();
    if (before < pinned_ || ahead_ >= layers() - 1) return;  // it stays, or is read ahead again
    const WeightPlaces::Layer& done = places_.layers[static_cast<size_t>(before)];
    release(done.own);
    for (const auto& ranges : done.experts) release(ranges);
  }

  void prefetch(int64_t layer, int32_t expert) override {
    const WeightPlaces::Layer& next = places_.layers[static_cast<size_t>(layer)];
    for (const WeightRange& range : expert == kNoExpert ? next.own : next.experts[static_cast<size_t>(expert)])
      file_->prefetch(static_cast<size_t>(range.begin), static_cast<size_t>(range.bytes));
  }

 private:
  int64_t layers() const { return std::ssize(places_.layers); }
  void release(const std::vector<WeightRange>& ranges) const {
    for (const WeightRange& range : ranges)
      file_->release(static_cast<size_t>(range.begin), static_cast<size_t>(range.bytes));
  }

  std::shared_ptr<const MappedFile> file_;
  WeightPlaces places_;
  int64_t ahead_, pinned_;
};

// Pinned layers, the one that runs and those ahead of it, and the one before it until it is released.
int64_t mapped_memory(const WeightPlaces& places, const OptionValues& options) {
  int64_t bytes = places.others, largest = 0, all = places.others;
  for (size_t i = 0; i < places.layers.size(); ++i) {
    const int64_t layer = places.layers[i].bytes();
    all += layer;
    if (static_cast<int64_t>(i) < options.integer("pinned"))
      bytes += layer;
    else
      largest = std::max(largest, layer);
  }
  return std::min(all, bytes + (2 + options.integer("ahead")) * largest);
}

std::unique_ptr<WeightSource> mapped_source(std::shared_ptr<const MappedFile> file, WeightPlaces places,
                                            const OptionValues& options) {
  return std::make_unique<MappedWeights>(std::move(file), std::move(places), options.integer("ahead"),
                                         options.integer("pinned"));
}

}  // namespace

const WeightSourceMember kMappedWeights = {.from_file = true, .memory = mapped_memory, .make = mapped_source};

}  // namespace millrace
