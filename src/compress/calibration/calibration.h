// InputCalibration: runs a model over the windows of a text and measures the input rows of its matrices. Not
// thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compress/output/residual_store.h"
#include "compress/pass.h"
#include "models/model_runner.h"
#include "run/language_model.h"

namespace millrace {

struct CalibrationOptions {
  std::string name;  // name of the text, for messages
  std::string text;
  int64_t context = 0;    // tokens of a window; 0: the model's context, at most 512
  int64_t windows = 128;  // maximum number of windows, from the text's start
  double held_out = 0;    // fraction of the windows, at the end, that is held out from the passes
  // Maximum bytes of residual streams that stay in memory between two ranges of layers. If they need more, they are in
  // a file next to `scratch`.
  int64_t stream_bytes = int64_t{1} << 30;
  std::string scratch = "millrace";
};

using StatisticsMap = std::map<LinearId, LinearStatistics>;

class InputCalibration {
 public:
  // Errors: user (the text is shorter than a window, or the model does not support the context), unsupported (no
  // tokenizer), resource.
  static Result<std::unique_ptr<InputCalibration>> create(std::shared_ptr<const LanguageModel> model,
                                                          std::shared_ptr<ThreadPool> threads,
                                                          const CalibrationOptions& options);

  // Number of windows, without the held-out ones.
  int64_t windows() const { return static_cast<int64_t>(tokens_.size()) / context_ - held_out_; }
  int64_t tokens() const { return windows() * context_; }
  int64_t held_out_windows() const { return held_out_; }
  int64_t context() const { return context_; }
  // XXH3-128 of the text, 32 hexadecimal digits.
  const std::string& text_hash() const { return hash_; }

  // Measures `needs` (StatisticBits) for the matrices that have an entry in `statistics`; `moments` of the entries must
  // have their sizes already. Runs the layers up to the last of these matrices. If the inputs of a layer before the
  // first of them are stored, starts there, otherwise at layer 0. `more`: true: also stores the inputs of the layer
  // after the last one, so that the next call can start there. Errors: resource.
  Result<void> measure(uint32_t needs, StatisticsMap& statistics, bool more,
                       const std::function<void(double)>& progress);

  // Measures the held-out windows instead.
  Result<void> measure_held_out(uint32_t needs, StatisticsMap& statistics, bool more,
                                const std::function<void(double)>& progress);

  // The layers of a run. It begins at the layer whose inputs are stored, if that is at most `from`, otherwise at layer
  // 0, and ends before `to`. `next`: layer, at most `to`, whose inputs are stored for the next run; -1: nothing is
  // stored.
  struct Layers {
    int64_t from = 0, to = 0, next = -1;
  };
  // Runs the windows through these layers; `observer` is called during the run. If the layers end with the model's last
  // one and `head` is true, the observer also receives the final hidden states, and the residual stream after the last
  // layer as if another layer followed. `after`: called after each window; an error ends the run.
  Result<void> run(ForwardObserver& observer, Layers layers, bool head, const std::function<Result<void>()>& after);

 private:
  InputCalibration() = default;
  struct Windows {
    int64_t first = 0, count = 0;
    int64_t stored = 0;  // layer whose inputs are in streams_; 0: none
  };
  Result<void> read(const CalibrationOptions& options);
  Result<void> measure_windows(Windows& windows, uint32_t needs, StatisticsMap& statistics, bool more,
                               const std::function<void(double)>& progress);
  Result<void> run_windows(Windows& windows, ForwardObserver& observer, Layers layers, bool head,
                           const std::function<Result<void>()>& after);
  Result<void> run_window(int64_t window, ForwardObserver& observer, const Layers& layers, bool head);

  std::shared_ptr<const LanguageModel> model_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<BlockId> blocks_;
  std::vector<TokenId> tokens_;  // whole windows
  int64_t context_ = 0;
  int64_t held_out_ = 0;  // number of held-out windows
  std::string hash_;
  Windows seen_, unseen_;
  int64_t stream_bytes_ = 0;
  std::string scratch_;
  std::optional<ResidualStore> streams_;  // streams of all windows
};

// Returns a warning if a calibration file contains no text (but a program or an image, for example); "" if it does.
std::string text_warning(const std::string& name, std::string_view text);

}  // namespace millrace
