// Window search: chooses a window for each head of the attention pattern semsa. While the model reads a text with full
// attention, the share of the attention that each of a list of windows would keep is measured in every KV head. Every
// head starts with the smallest window. The window that gains most attention per key is then enlarged, repeatedly,
// until the heads together see the allowed number of keys. `millrace window-search` prints the windows, and the
// compression pass semsa stores them in a model's file.
//
// MoA (Fu et al., 2024) weights lost attention by the gradient of the loss. Here the attention of all heads counts
// equally.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "attention/patterns/head_window.h"
#include "models/forward_hooks.h"
#include "run/language_model.h"

namespace millrace {

struct WindowSearchOptions {
  int threads = 0;         // 0: all cores
  int64_t context = 1024;  // tokens of the windows that the text is cut into
  int64_t block = 64;
  int64_t sinks = 1;
  double keys = 0.25;  // allowed fraction of all keys that queries see, on average over heads
};

// Attention that one window keeps in one head, on average over queries.
struct WindowGain {
  HeadWindow window;
  double mass = 0;
  double keys = 0;
};

struct ChosenWindows {
  std::vector<HeadWindow> windows;  // windows of each head
  double mass = 0;                  // on average over heads
  double keys = 0;

  std::string text() const;  // value of semsa's option `windows`
};

// Measures the gains of all windows while a model runs. Deterministic for any number of threads.
class WindowMeter final : public ForwardObserver {
 public:
  explicit WindowMeter(const WindowSearchOptions& options);

  void queries(const AttentionInput& in) override;

  // Returns the gains for the KV heads of all layers, in order.
  std::vector<std::vector<WindowGain>> gains() const;

 private:
  void add(int64_t head, const float* weights, int64_t group, int64_t slot);

  int64_t block_, sinks_;
  std::vector<HeadWindow> windows_;
  std::vector<WindowGain> gains_;  // [heads, windows], sums
  int64_t queries_ = 0;
  std::vector<float> weights_;
  std::vector<double> before_;
};

// Checks that windows of this model's heads can be measured. `what`: name of the caller, for messages. Errors:
// unsupported.
Result<void> check_window_layers(const ArchSpec& spec, int64_t context, std::string_view what);

// Chooses a window for each head, for the fraction `keys` of all keys, or more if even the smallest windows see more.
// `gains`: for each head, the gains of all windows, in the same order. Pure.
ChosenWindows choose_windows(std::span<const std::vector<WindowGain>> gains, double keys);

// Returns the best choice in which all heads have the same window. Pure.
ChosenWindows same_window(std::span<const std::vector<WindowGain>> gains, double keys);

// Measures the gains on the text and returns them for the KV heads of all layers, in order. Errors: user (the text is
// too short, invalid options), unsupported (some layers do not see every key), resource.
Result<std::vector<std::vector<WindowGain>>> measure_windows(const std::shared_ptr<const LanguageModel>& model,
                                                             std::span<const TokenId> tokens,
                                                             const WindowSearchOptions& options);

}  // namespace millrace
