#include "compress/neurons/neuron_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "compress/neurons/low_rank_signs.h"
#include "compress/neurons/neuron_samples.h"
#include "evaluate/scorer.h"
#include "sampling/logprobs.h"

namespace millrace {
namespace {

constexpr int64_t kScoredTokens = 256;  // tokens whose neurons are predicted together

std::vector<uint8_t> f16_of(const std::vector<float>& values) {
  std::vector<uint8_t> out(values.size() * 2);
  find_format("f16")->encode(values.data(), out.data(), std::ssize(values));
  return out;
}

struct FitTask {
  const KernelTable& table;
  ThreadPool& pool;
  int64_t width, hidden;
  const NeuronFitOptions& options;
};

// Calls body(token, scores [hidden]) for samples [begin, end).
template <typename Body>
Result<void> each_score(const FitTask& task, const NeuronPredictor& predictor, const LayerSamples& samples,
                        int64_t begin, int64_t end, const Body& body) {
  PredictorRows rows;
  for (int64_t first = begin; first < end; first += kScoredTokens) {
    const int64_t count = std::min(kScoredTokens, end - first);
    MILLRACE_TRY_VOID(predictor.score(samples.inputs.data() + first * task.width, count, task.table, task.pool, rows));
    for (int64_t t = 0; t < count; ++t) body(first + t, rows.scores.data() + t * task.hidden);
  }
  return {};
}

// By neuron: the score that a share `recall` of its active tokens exceed.
std::vector<float> thresholds_of(std::vector<std::vector<float>>& active_scores, double recall) {
  std::vector<float> out;
  for (std::vector<float>& scores : active_scores) {
    if (scores.empty()) {
      out.push_back(FLT_MAX);  // the text never used the neuron
      continue;
    }
    const auto left_out = static_cast<size_t>((1 - recall) * static_cast<double>(scores.size()));
    std::ranges::nth_element(scores, scores.begin() + static_cast<int64_t>(left_out));
    out.push_back(std::nextafter(scores[left_out], -FLT_MAX));
  }
  return out;
}

// A layer's predictor, and how right it is on the samples from `train` on.
Result<void> fit_layer(const FitTask& task, const LayerSamples& samples, int64_t train, NeuronProfile& profile,
                       NeuronFitLayer& figures) {
  const int64_t hidden = task.hidden;
  MILLRACE_TRY_VOID(fit_low_rank_signs(samples, train, task.width, hidden, task.options.rank, task.options.damping,
                                       task.table, task.pool, profile));
  const std::vector<uint8_t> a = f16_of(profile.a), b = f16_of(profile.b);
  MILLRACE_TRY(const NeuronPredictor predictor,
               NeuronPredictor::create(a.data(), b.data(), profile.thresholds, task.width, task.options.rank,
                                       task.table, task.pool));
  std::vector<std::vector<float>> scores(static_cast<size_t>(hidden));
  MILLRACE_TRY_VOID(each_score(task, predictor, samples, 0, train, [&](int64_t token, const float* row) {
    for (int64_t n = 0; n < hidden; ++n)
      if (samples.active[static_cast<size_t>(token * hidden + n)]) scores[static_cast<size_t>(n)].push_back(row[n]);
  }));
  profile.thresholds = thresholds_of(scores, task.options.recall);
  int64_t predicted = 0, active = 0, both = 0;
  MILLRACE_TRY_VOID(each_score(task, predictor, samples, train, samples.tokens, [&](int64_t token, const float* row) {
    for (int64_t n = 0; n < hidden; ++n) {
      const bool is = samples.active[static_cast<size_t>(token * hidden + n)];
      const bool says = row[n] > profile.thresholds[static_cast<size_t>(n)];
      active += is;
      predicted += says;
      both += is && says;
    }
  }));
  const auto share = [](int64_t part, int64_t all) {
    return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0.0;
  };
  figures.predicted = share(predicted, (samples.tokens - train) * hidden);
  figures.recall = share(both, active);
  figures.precision = share(both, predicted);
  return {};
}

Result<double> mean_loss(Scorer& scorer, std::span<const TokenId> tokens, std::span<const ScoreWindow> windows) {
  double sum = 0;
  int64_t count = 0;
  MILLRACE_TRY_VOID(scorer.run(tokens, windows, -1, [&](std::span<const ScoredRow> rows) {
    for (const ScoredRow& row : rows) {
      sum +=
          log_sum_exp({row.logits, static_cast<size_t>(scorer.vocab())}) - static_cast<double>(row.logits[row.target]);
      ++count;
    }
    return Result<void>();
  }));
  return sum / static_cast<double>(count);
}

// The loss of the windows with the predictors' masks.
Result<double> predicted_loss(Scorer& scorer, const FitTask& task, const std::vector<NeuronProfile>& profiles,
                              bool gated, std::span<const TokenId> tokens, std::span<const ScoreWindow> windows) {
  std::vector<std::vector<uint8_t>> stored;
  std::vector<NeuronPredictor> predictors;
  for (const NeuronProfile& profile : profiles) {
    stored.push_back(f16_of(profile.a));
    stored.push_back(f16_of(profile.b));
    MILLRACE_TRY(auto predictor,
                 NeuronPredictor::create(stored[stored.size() - 2].data(), stored.back().data(), profile.thresholds,
                                         task.width, task.options.rank, task.table, task.pool));
    predictors.push_back(std::move(predictor));
  }
  NeuronMask mask(predictors, gated);
  scorer.runner().hooks().add(mask);
  auto loss = mean_loss(scorer, tokens, windows);
  scorer.runner().hooks().remove(mask);
  if (!mask.state().ok()) return mask.state().error();
  return loss;
}

}  // namespace

Result<NeuronFit> fit_neurons(const std::shared_ptr<const LanguageModel>& model, std::span<const TokenId> tokens,
                              const NeuronFitOptions& options) {
  const LanguageModel::Parts& parts = model->parts();
  const ArchSpec& spec = parts.model->spec();
  MILLRACE_TRY(const NeuronShape shape, neuron_shape(*parts.files, spec));
  if (options.rank > shape.width)
    return Error::user(fmt::format("rank: {} is more than the model's width, {}", options.rank, shape.width));
  MILLRACE_TRY_VOID(check_text_length(std::ssize(tokens), options.context));
  auto windows = chunk_windows(std::ssize(tokens), options.context);
  if (windows.size() < 4)
    return Error::user(
        fmt::format("the text has {} windows of {} tokens; at least 4 are needed", windows.size(), options.context));
  for (ScoreWindow& window : windows) window.first_scored = 1;  // so that the last layer sees all tokens, too
  MILLRACE_TRY(const auto scorer, Scorer::create(model, {.threads = options.threads, .context = options.context}));
  NeuronSampler sampler(shape.layers, shape.gated);
  scorer->runner().hooks().add(sampler);
  const size_t trained = windows.size() - windows.size() / 4;
  const auto train_windows = std::span(windows).first(trained), held_out = std::span(windows).subspan(trained);
  auto seen = mean_loss(*scorer, tokens, train_windows);
  std::vector<int64_t> train;
  for (const LayerSamples& samples : sampler.samples()) train.push_back(samples.tokens);
  NeuronFit out;
  auto loss = seen.ok() ? mean_loss(*scorer, tokens, held_out) : seen;
  scorer->runner().hooks().remove(sampler);
  if (!loss.ok()) return loss.error();
  out.loss = *loss;
  const FitTask task{parts.kernels, scorer->pool(), shape.width, shape.hidden, options};
  const auto hidden = static_cast<size_t>(shape.hidden);
  for (size_t l = 0; l < static_cast<size_t>(shape.layers); ++l) {
    LayerSamples& samples = sampler.samples()[l];
    NeuronProfile& profile = out.profiles.emplace_back();
    NeuronFitLayer& figures = out.layers.emplace_back();
    profile.active.assign(hidden, 0);
    profile.thresholds.assign(hidden, 0.0f);
    int64_t active = 0;
    for (size_t i = 0; i < samples.active.size(); ++i) {
      profile.active[i % hidden] += samples.active[i];
      if (i >= static_cast<size_t>(train[l]) * hidden) active += samples.active[i];
    }
    figures.active = static_cast<double>(active) / static_cast<double>((samples.tokens - train[l]) * shape.hidden);
    out.tokens = std::max(out.tokens, samples.tokens);
    if (options.rank > 0) MILLRACE_TRY_VOID(fit_layer(task, samples, train[l], profile, figures));
    samples = {};
  }
  if (options.rank == 0) return out;
  MILLRACE_TRY(out.predicted_loss, predicted_loss(*scorer, task, out.profiles, shape.gated, tokens, held_out));
  return out;
}

}  // namespace millrace
