#include "evaluate/window_search.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/kept_mass.h"
#include "attention/query_weights.h"
#include "evaluate/scorer.h"

namespace millrace {
namespace {

constexpr int64_t kGrowths[] = {0, 25, 50, 100};  // beta, percent

std::vector<HeadWindow> candidates(int64_t blocks) {
  std::vector<HeadWindow> out;
  for (int64_t beta : kGrowths) {
    for (int64_t alpha = 1; alpha < 2 * blocks && (beta < 100 || alpha == 1); alpha *= 2) out.push_back({alpha, beta});
  }
  return out;
}

ChosenWindows summed(std::span<const std::vector<WindowGain>> gains, std::span<const size_t> chosen) {
  ChosenWindows out;
  const auto heads = static_cast<double>(gains.size());
  for (size_t h = 0; h < gains.size(); ++h) {
    const WindowGain& gain = gains[h][chosen[h]];
    out.windows.push_back(gain.window);
    out.mass += gain.mass / heads;
    out.keys += gain.keys / heads;
  }
  return out;
}

}  // namespace

WindowMeter::WindowMeter(const WindowSearchOptions& options)
    : block_(options.block),
      sinks_(options.sinks),
      windows_(candidates((options.context + options.block - 1) / options.block)) {}

void WindowMeter::queries(const AttentionInput& in) {
  const AttentionLayer& layer = in.layer;
  while (gains_.size() < static_cast<size_t>(in.kv.layout().heads()) * windows_.size())
    gains_.push_back({windows_[gains_.size() % windows_.size()]});
  const int64_t group = layer.heads / layer.kv_heads, first_head = in.kv.layout().heads_before(layer.layer);
  for (const BatchSpan& span : in.batch.spans_of(layer.group))
    for (int64_t i = 0; i < span.count; ++i) {
      const int64_t slot = span.first_slot + i;
      if (slot % kKeptMassEvery != kKeptMassEvery - 1) continue;
      const float* q = in.q + (span.begin + i) * layer.heads * layer.head_dim;
      for (int64_t h = 0; h < layer.kv_heads; ++h) {
        weights_.resize(static_cast<size_t>(layer.head_dim + group * (slot + 1)));
        query_weights(span, in.batch, layer, in.kernels, in.kv, h, q, 0, slot + 1, weights_.data(), in.tiles);
        add(first_head + h, weights_.data() + layer.head_dim, group, slot);
      }
      queries_ += layer.layer == 0;
    }
}

std::vector<std::vector<WindowGain>> WindowMeter::gains() const {
  std::vector<std::vector<WindowGain>> out;
  for (size_t at = 0; at < gains_.size(); at += windows_.size()) {
    auto& head = out.emplace_back(gains_.begin() + static_cast<int64_t>(at),
                                  gains_.begin() + static_cast<int64_t>(at + windows_.size()));
    for (WindowGain& gain : head) {
      gain.mass /= static_cast<double>(queries_);
      gain.keys /= static_cast<double>(queries_);
    }
  }
  return out;
}

// weights [group, slot + 1]
void WindowMeter::add(int64_t head, const float* weights, int64_t group, int64_t slot) {
  const int64_t slots = slot + 1, own = slot / block_;
  before_.assign(static_cast<size_t>(own + 2), 0);  // mass before each block
  for (int64_t b = 0; b <= own; ++b) {
    double mass = 0;
    for (int64_t g = 0; g < group; ++g)
      for (int64_t k = b * block_; k < std::min(slots, (b + 1) * block_); ++k) mass += weights[g * slots + k];
    before_[static_cast<size_t>(b + 1)] = before_[static_cast<size_t>(b)] + mass / static_cast<double>(group);
  }
  const int64_t sinks = std::min(sinks_, own);
  for (size_t w = 0; w < windows_.size(); ++w) {
    const int64_t first = std::max(sinks, own + 1 - windows_[w].blocks(own));
    WindowGain& gain = gains_[static_cast<size_t>(head) * windows_.size() + w];
    gain.mass += before_[static_cast<size_t>(sinks)] + before_.back() - before_[static_cast<size_t>(first)];
    gain.keys += static_cast<double>(sinks * block_ + slots - first * block_) / static_cast<double>(slots);
  }
}

Result<void> check_window_layers(const ArchSpec& spec, int64_t context, std::string_view what) {
  for (const LayerSpec& layer : spec.layers)
    if (layer.kv_heads < 1 || (layer.window > 0 && layer.window < context))
      return Error::unsupported(fmt::format("{}: some layers of this model do not see every key", what));
  return {};
}

std::string ChosenWindows::text() const {
  std::string out;
  for (const HeadWindow& window : windows) out += (out.empty() ? "" : ".") + window.text();
  return out;
}

ChosenWindows choose_windows(std::span<const std::vector<WindowGain>> gains, double keys) {
  std::vector<size_t> chosen;
  double left = keys * static_cast<double>(gains.size());
  for (const auto& head : gains) {
    const auto least = std::ranges::min_element(head, {}, &WindowGain::keys);
    chosen.push_back(static_cast<size_t>(least - head.begin()));
    left -= least->keys;
  }
  while (true) {
    double best = 0;
    size_t best_head = 0, best_window = 0;
    for (size_t h = 0; h < gains.size(); ++h) {
      const WindowGain& now = gains[h][chosen[h]];
      for (size_t w = 0; w < gains[h].size(); ++w) {
        const double more = gains[h][w].keys - now.keys, gain = gains[h][w].mass - now.mass;
        if (more <= 0 || more > left || gain / more <= best) continue;  // of windows that are alike, the first
        best = gain / more;
        best_head = h;
        best_window = w;
      }
    }
    if (best == 0) return summed(gains, chosen);
    left -= gains[best_head][best_window].keys - gains[best_head][chosen[best_head]].keys;
    chosen[best_head] = best_window;
  }
}

ChosenWindows same_window(std::span<const std::vector<WindowGain>> gains, double keys) {
  ChosenWindows best;
  for (size_t w = 0; w < gains.front().size(); ++w) {
    ChosenWindows all = summed(gains, std::vector<size_t>(gains.size(), w));
    if (best.windows.empty() || (all.keys <= keys && all.mass > best.mass)) best = std::move(all);
  }
  return best;
}

Result<std::vector<std::vector<WindowGain>>> measure_windows(const std::shared_ptr<const LanguageModel>& model,
                                                             std::span<const TokenId> tokens,
                                                             const WindowSearchOptions& options) {
  MILLRACE_TRY_VOID(check_window_layers(model->parts().model->spec(), options.context, "window-search"));
  MILLRACE_TRY(const auto scorer, Scorer::create(model, {.threads = options.threads, .context = options.context}));
  MILLRACE_TRY_VOID(check_text_length(std::ssize(tokens), options.context));
  const auto windows = chunk_windows(std::ssize(tokens), options.context);
  WindowMeter meter(options);
  ForwardHooks& hooks = scorer->runner().hooks();
  hooks.add(meter);
  const auto done = scorer->run(tokens, windows, -1, [](std::span<const ScoredRow>) { return Result<void>(); });
  hooks.remove(meter);
  MILLRACE_TRY_VOID(done);
  return meter.gains();
}

}  // namespace millrace
