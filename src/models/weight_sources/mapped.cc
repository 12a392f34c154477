// Layers are pages of the mapped packed cache: the system starts reading them some layers ahead, and a layer's pages
// leave this process's memory when the last pass that reads them goes on to its next layer. So a model may be larger
// than the memory budget. Released pages are still in the system's page cache while there is room for them. Of a
// mixture of experts only the experts that tokens chose are read.
#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "base/memory_accounts.h"
#include "models/weight_sources/records.h"
#include "tensor/mapping_guard.h"

namespace millrace {
namespace {

class MappedWeights final : public WeightSource {
 public:
  MappedWeights(std::shared_ptr<const MappedFile> file, WeightPlaces places, int64_t ahead, int64_t pinned)
      : file_(std::move(file)),
        guard_(file_->bytes()),
        places_(std::move(places)),
        ahead_(std::min(ahead, layers() - 1)),
        pinned_(pinned) {
    for (const WeightPlaces::Layer& layer : places_.layers)
      leases_.emplace_back(1 + layer.experts.size(), 0);  // the layer's own, then its experts'
  }

  // Lost pages read as zeros from then on, also if the file is whole again: every later pass fails, too.
  Result<void> damage() const override {
    if (!guard_.hit()) return {};
    return Error::internal(
        fmt::format("{}: weights can no longer be read: the file was cut off while in use, or the disk reports an "
                    "error; start again, which packs them again",
                    file_->path()));
  }

 private:
  // Starts to read the unit. Does not wait.
  void prefetch(WeightUnit of) {
    for (const WeightRange& range : places_.ranges(of))
      file_->prefetch(static_cast<size_t>(range.begin), static_cast<size_t>(range.bytes));
  }

  Result<void> begin(WeightUnit of) override {
    {
      const std::lock_guard lock(mutex_);
      ++leases(of);
    }
    if (of.expert != WeightUnit::kNoExpert) {
      prefetch(of);
      return {};
    }
    for (int64_t i = 1; i <= ahead_; ++i) prefetch({(of.layer + i) % layers()});
    return {};
  }

  // Under the lock, so that no pass begins to read what is being released. A pass that does so afterwards reads the
  // pages again.
  void end(WeightUnit of) override {
    const std::lock_guard lock(mutex_);
    if (--leases(of) > 0 || of.layer < pinned_ || ahead_ == layers() - 1) return;  // it stays, or is read ahead again
    for (const WeightRange& range : places_.ranges(of))
      file_->release(static_cast<size_t>(range.begin), static_cast<size_t>(range.bytes));
  }

  int64_t layers() const { return std::ssize(places_.layers); }
  int64_t& leases(WeightUnit of) { return leases_[static_cast<size_t>(of.layer)][static_cast<size_t>(of.expert + 1)]; }

  std::shared_ptr<const MappedFile> file_;
  const MappingGuard guard_;
  const WeightPlaces places_;
  const int64_t ahead_, pinned_;
  std::mutex mutex_;
  std::vector<std::vector<int64_t>> leases_;  // numbers of open ones, by layer
};

// Pinned layers, the one that runs, and those ahead of it.
Result<int64_t> mapped_memory(const WeightPlaces& places, const OptionValues& options, int64_t /*limit*/) {
  int64_t bytes = places.other_bytes(), largest = 0;
  for (size_t i = 0; i < places.layers.size(); ++i) {
    const int64_t layer = places.layers[i].bytes();
    if (static_cast<int64_t>(i) < options.integer("pinned"))
      bytes += layer;
    else
      largest = std::max(largest, layer);
  }
  return std::min(places.bytes(), bytes + (1 + options.integer("ahead")) * largest);
}

Result<PlacedWeights> mapped_source(WeightFile file, WeightPlaces places, const OptionValues& options,
                                    int64_t /*memory*/) {
  const uint8_t* packed = file.mapped->bytes().data() + file.payload;
  return PlacedWeights{std::make_unique<MappedWeights>(std::move(file.mapped), std::move(places),
                                                       options.integer("ahead"), options.integer("pinned")),
                       packed};
}

// A pass touches the pages of all layers that are not pinned. The system's page cache has them, if the whole file fits
// there; else, as passes read in a circle, it has none of them in time.
Result<WeightForecast> predict_mapped(const WeightQuestion& question) {
  const WeightPlaces& places = question.places;
  const OffloadCosts& costs = places.costs;
  const OffloadWork& work = question.work;
  MILLRACE_TRY(const int64_t memory, mapped_memory(places, question.options, question.limit));
  if (memory > question.limit)
    return Error::resource(fmt::format("pinned layers, and those that are read ahead, need {}, and weights may have {}",
                                       format_bytes(memory), format_bytes(question.limit)));
  WeightForecast out{.kept_bytes = places.other_bytes()};
  for (int64_t i = 0; i < std::min(question.options.integer("pinned"), std::ssize(places.layers)); ++i)
    out.kept_bytes += places.layers[static_cast<size_t>(i)].bytes();
  out.cache_bytes = memory - out.kept_bytes;
  // A pass of a mixture touches the experts that tokens chose.
  const OffloadModel& model = places.model;
  const auto touched = [&](int64_t rows) {
    if (model.experts == 0) return static_cast<double>(places.bytes() - out.kept_bytes);
    const double used = distinct_experts(model.experts, model.used_experts, rows) / static_cast<double>(model.experts);
    double bytes = 0;
    for (const WeightPlaces::Layer& layer : places.layers) {
      const double own = static_cast<double>(WeightPlaces::bytes_of(layer.own));
      bytes += own + used * (static_cast<double>(layer.bytes()) - own);
    }
    return bytes;
  };
  const bool cached = places.bytes() <= work.cached_bytes;
  const double rate = cached ? costs.cached_bytes : std::min(costs.cached_bytes, costs.read_bytes);
  const double decode = touched(work.streams), prefill = touched(work.chunk);
  out.decode_bytes = cached ? 0 : decode;
  out.prefill_bytes = cached ? 0 : prefill;
  out.decode_seconds = decode_seconds(costs, model, work.streams, work.mean_context()) + decode / rate;
  out.prefill_seconds = prefill_seconds(costs, model, work.chunk) + prefill / rate;
  out.note = cached ? "from the system's page cache" : "the file is larger than the memory for the page cache";
  return out;
}

}  // namespace

const WeightSourceMember kMappedWeights = {
    .from_file = true, .memory = mapped_memory, .make = mapped_source, .predict = predict_mapped};

}  // namespace millrace
