// Dynamic in-context learning (Zhou et al., 2023, Efficient Prompting via Dynamic In-Context Learning): a controller
// says how many of the examples before a question are enough, within a budget of tokens. The paper trains the
// controller on the least number that was enough; here it reads the curve of the model's own surprise over the
// examples, from one pass over the prompt: from where further examples are no easier to predict, they are dropped.
//
//   surprise of each example   5.1  3.9  1.2  1.0  1.1  0.9  1.0      end of the curve: 1.0, mean of the last ones
//   mean of the next ones           3.4  2.0  1.1  1.0  ...            first within the tolerance: two examples remain
#include <algorithm>
#include <cmath>

#include "prompt/compression_task.h"
#include "prompt/compressors/factories.h"

namespace millrace {
namespace {

struct ControllerOptions {
  int64_t least = 2;     // examples that always remain
  int64_t window = 4;    // examples over which surprise is averaged
  double tolerance = 0;  // above the end of the curve, as a share of it
};

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

class DynaIcl final : public CompressorWithOptions {
 public:
  DynaIcl(CompressionOptions options, ControllerOptions own) : CompressorWithOptions(std::move(options)), own_(own) {}

  PromptNeeds needs() const override { return kNeedsSelfInformation; }

  Result<PromptRest> compress(const PromptView& prompt, PromptScores& scores, int64_t budget) const override {
    const CompressionTask task = CompressionTask::create(prompt, options_, budget);
    MILLRACE_TRY(const auto information, scores.self_information(options_.model, prompt.tokens));
    const size_t wanted = enough(surprises(task, information));
    std::vector<char> dropped(prompt.tokens.size());
    int64_t left = task.keep;
    for (size_t i = 0; i < task.parts.size(); ++i) {
      const TokenRange& part = task.parts[i];
      const bool kept = i < wanted && part.count <= left;
      if (kept)
        left -= part.count;
      else
        left = 0;  // examples remain from the beginning on
      if (!kept) std::fill_n(dropped.begin() + part.first, part.count, char{1});
    }
    if (std::ranges::count(dropped, char{0}) == 0) std::fill_n(dropped.begin(), task.keep, char{0});
    return PromptRest{remaining(dropped)};
  }

 private:
  // The mean information of each part's tokens.
  static std::vector<double> surprises(const CompressionTask& task, std::span<const float> information) {
    std::vector<double> out;
    for (const TokenRange& part : task.parts) {
      std::vector<double> own;
      for (int64_t i = part.first; i < part.first + part.count; ++i)
        if (const float value = information[static_cast<size_t>(i)]; std::isfinite(value)) own.push_back(value);
      out.push_back(mean_of(own));
    }
    return out;
  }

  // The number of parts after which the next ones are as easy to predict as the last ones.
  size_t enough(std::span<const double> surprises) const {
    const size_t size = surprises.size(), window = std::min(static_cast<size_t>(own_.window), size);
    const double end = mean_of(surprises.last(window)) * (1 + own_.tolerance);
    size_t count = std::min(static_cast<size_t>(own_.least), size);
    while (count + window < size && mean_of(surprises.subspan(count, window)) > end) ++count;
    return count + window < size ? count : size;
  }

  const ControllerOptions own_;
};

}  // namespace

Result<std::unique_ptr<PromptCompressor>> make_dynaicl(const OptionValues& options) {
  MILLRACE_TRY(auto shared, CompressionOptions::read(options, true, true));
  const ControllerOptions own{options.integer("least"), options.integer("window"), options.number("tolerance")};
  return std::unique_ptr<PromptCompressor>(std::make_unique<DynaIcl>(std::move(shared), own));
}

}  // namespace millrace
