#include "evaluate/kvquant_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>

#include "base/line_clusters.h"
#include "evaluate/scorer.h"
#include "tensor/half.h"

namespace millrace {
namespace {

constexpr int64_t kBins = 4096;  // between -1 and 1

// Weights in whole numbers, so that their sum does not depend on the order in which threads add them. A range above
// 2^9 counts as 2^9: so even 2^25 values stay within 64 bits.
int64_t weight_of(float range) { return std::llround(std::min(std::ldexp(range * range, 20), std::ldexp(1.0f, 38))); }

double middle(int64_t bin) { return (2 * (static_cast<double>(bin) + 0.5) / kBins) - 1; }

struct Histogram {
  std::array<std::atomic<int64_t>, kBins> bins{};

  void add(float value, int64_t weight) {
    const auto bin = static_cast<int64_t>((value + 1) / 2 * kBins);
    bins[static_cast<size_t>(std::clamp<int64_t>(bin, 0, kBins - 1))].fetch_add(weight, std::memory_order_relaxed);
  }
};

// KvQuant of one layer, which fills the histograms while it encodes.
class RecordedLayer final : public KvQuant {
 public:
  using KvQuant::KvQuant;
  mutable Histogram keys, values;

 protected:
  void fit(KvPart part, const float* from, int64_t n, FittedGroup& out) const override {
    KvQuant::fit(part, from, n, out);
    const float zero = f16_to_f32(out.zero), scale = f16_to_f32(out.scale);
    if (scale == 0) return;
    Histogram& histogram = part == KvPart::keys ? keys : values;
    const int64_t weight = weight_of(scale);
    for (int64_t i = 0; i < n; ++i) histogram.add((from[i] - zero) / scale, weight);
  }
  void fit_columns(LevelColumns& columns) const override { LevelCodec::fit_columns(columns); }
};

class RecordedKvQuant final : public KvQuant {
 public:
  RecordedKvQuant(const KvQuantShape& shape, int64_t layers) : KvQuant(shape) {
    for (int64_t i = 0; i < layers; ++i) layers_.push_back(std::make_unique<RecordedLayer>(shape));
  }
  Result<void> check_layers(int64_t) const override { return {}; }
  const RecordedLayer& layer(int64_t index) const override { return *layers_[static_cast<size_t>(index)]; }

 private:
  std::vector<std::unique_ptr<RecordedLayer>> layers_;
};

double error_of(const Histogram& histogram, const NormalCodes& codes, int bits) {
  double error = 0, weights = 0;
  for (int64_t bin = 0; bin < kBins; ++bin) {
    const auto weight = static_cast<double>(histogram.bins[static_cast<size_t>(bin)].load());
    double least = 4;
    for (size_t i = 0; i < size_t{1} << bits; ++i)
      least = std::min(least, std::pow(middle(bin) - static_cast<double>(codes[i]), 2));
    error += weight * least;
    weights += weight;
  }
  return weights > 0 ? error / weights : 0;
}

NormalCodes fitted_codes(const Histogram& histogram, int bits) {
  std::vector<float> places;
  std::vector<double> weights;
  for (int64_t bin = 0; bin < kBins; ++bin) {
    const int64_t weight = histogram.bins[static_cast<size_t>(bin)].load();
    if (weight == 0) continue;
    places.push_back(static_cast<float>(middle(bin)));
    weights.push_back(static_cast<double>(weight));
  }
  if (places.empty()) return unit_codes(bits);  // a layer without keys
  const std::vector<double> means = cluster_means(places, weights, int64_t{1} << bits);
  NormalCodes out{};
  for (size_t i = 0; i < means.size(); ++i) out[i] = f16_to_f32(f32_to_f16(static_cast<float>(means[i])));
  return out;
}

}  // namespace

Result<KvQuantFit> fit_kvquant_levels(const std::shared_ptr<const LanguageModel>& model,
                                      std::span<const TokenId> tokens, const KvQuantFitOptions& options) {
  MILLRACE_TRY_VOID(check_text_length(std::ssize(tokens), options.context));
  const auto windows = chunk_windows(std::ssize(tokens), options.context);
  const int64_t layers = std::ssize(model->parts().model->kv_layers());
  const auto recorded = std::make_shared<RecordedKvQuant>(options.shape, layers);
  MILLRACE_TRY(const auto scorer,
               Scorer::create(model, {.threads = options.threads, .context = options.context, .kv_codec = recorded}));
  MILLRACE_TRY_VOID(scorer->run(tokens, windows, -1, [](std::span<const ScoredRow>) { return Result<void>(); }));
  KvQuantFit out;
  const int bits = out.levels.bits = options.shape.bits;
  for (int64_t i = 0; i < layers; ++i) {
    const RecordedLayer& layer = recorded->layer(i);
    const KvQuantCodes codes{fitted_codes(layer.keys, bits), fitted_codes(layer.values, bits)};
    out.levels.layers.push_back(codes);
    out.keys.push_back({error_of(layer.keys, codes.keys, bits), error_of(layer.keys, unit_codes(bits), bits)});
    out.values.push_back({error_of(layer.values, codes.values, bits), error_of(layer.values, unit_codes(bits), bits)});
  }
  return out;
}

}  // namespace millrace
