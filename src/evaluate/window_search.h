// Window search: the windows of the heads for the attention pattern semsa. On a text, the attention of every KV head to
// all keys is measured, and the part of it that each of a list of windows would keep. Every head starts with the
// smallest window. Then the window that gains most mass a key is enlarged, until the heads together see as many keys as
// they may. `millrace window-search` prints them, and the compression pass semsa stores them in a model's file.
//
// MoA (Fu et al., 2024) weighs the attention that is left out by the gradient of the loss; here all heads' attention
// counts equally.
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
  double keys = 0.25;  // the share of all keys that queries see, on average over heads
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

  std::string text() const;  // as semsa's option `windows`
};

// Measures while a model runs. Deterministic for any number of threads.
class WindowMeter final : public ForwardObserver {
 public:
  explicit WindowMeter(const WindowSearchOptions& options);

  void queries(const AttentionInput& in) override;

  // Gains of the KV heads of all layers, in order.
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

// Checks that windows of this model's heads can be measured. `what`: name of the caller. Errors: unsupported.
Result<void> check_window_layers(const ArchSpec& spec, int64_t context, std::string_view what);

// `gains`: of each head, the same windows. Fewer keys than the smallest windows see cannot be had. Pure.
ChosenWindows choose_windows(std::span<const std::vector<WindowGain>> gains, double keys);

// The best of the choices that give every head the same window. Pure.
ChosenWindows same_window(std::span<const std::vector<WindowGain>> gains, double keys);

// The gains of the KV heads of all layers, in order, on the text. Errors: user (a text that is too short, options),
// unsupported (layers that do not see every key), resource.
Result<std::vector<std::vector<WindowGain>>> measure_windows(const std::shared_ptr<const LanguageModel>& model,
                                                             std::span<const TokenId> tokens,
                                                             const WindowSearchOptions& options);

}  // namespace millrace
