// InputCalibration: runs a model over the windows of a text and measures the input rows of its matrices. Not
// thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compress/pass.h"
#include "models/model_runner.h"
#include "run/language_model.h"

namespace millrace {

struct CalibrationOptions {
  std::string name;  // of the text, for messages
  std::string text;
  int64_t context = 0;    // tokens of a window; 0: the model's context, at most 512
  int64_t windows = 128;  // at most; from the text's start
  double held_out = 0;    // part of the windows, the last ones, that the passes do not see
};

using StatisticsMap = std::map<LinearId, LinearStatistics>;

class InputCalibration {
 public:
  // Errors: user (a text that fills no window, a context that the model cannot have), unsupported (no tokenizer),
  // resource.
  static Result<std::unique_ptr<InputCalibration>> create(std::shared_ptr<const LanguageModel> model,
                                                          std::shared_ptr<ThreadPool> threads,
                                                          const CalibrationOptions& options);

  // Without those held out.
  int64_t windows() const { return static_cast<int64_t>(tokens_.size()) / context_ - held_out_; }
  int64_t tokens() const { return windows() * context_; }
  int64_t held_out_windows() const { return held_out_; }
  int64_t context() const { return context_; }
  // XXH3-128 of the text, 32 hexadecimal digits.
  const std::string& text_hash() const { return hash_; }

  // Measures `needs` (StatisticBits) of the matrices with an entry in `statistics`, whose moments have their size.
  // Runs the layers up to the last one among them. Errors: resource.
  Result<void> measure(uint32_t needs, StatisticsMap& statistics, const std::function<void(double)>& progress);

  // The same of the windows held out.
  Result<void> measure_held_out(uint32_t needs, StatisticsMap& statistics, const std::function<void(double)>& progress);

  // Runs the windows through the first `layers` layers. `observer` gets what it observes; if these are all layers and
  // with `head`, the final hidden states, too, and the residual stream after the last layer as that before the next.
  // `after` each window: an error ends the run.
  Result<void> run(ForwardObserver& observer, int64_t layers, bool head, const std::function<Result<void>()>& after);

 private:
  InputCalibration() = default;
  struct Windows {
    int64_t first = 0, count = 0;
  };
  Result<void> read(const CalibrationOptions& options);
  Result<void> measure_windows(Windows windows, uint32_t needs, StatisticsMap& statistics,
                               const std::function<void(double)>& progress);
  Result<void> run_windows(Windows windows, ForwardObserver& observer, int64_t layers, bool head,
                           const std::function<Result<void>()>& after);

  std::shared_ptr<const LanguageModel> model_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<BlockId> blocks_;
  std::vector<TokenId> tokens_;  // whole windows
  int64_t context_ = 0;
  int64_t held_out_ = 0;  // windows
  std::string hash_;
};

}  // namespace millrace
