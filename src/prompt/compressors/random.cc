// The baseline of the family: units of text are dropped at random until the budget is met. The draws depend on the seed
// and the place of a unit alone, so a prompt is always shortened in the same way.
#include <algorithm>
#include <numeric>
#include <utility>

#include "base/philox.h"
#include "prompt/compression_task.h"
#include "prompt/compressors/factories.h"

namespace millrace {
namespace {

constexpr uint64_t kRandomUnits = 0x70726f6d7074;  // stream of the draws; frozen

class RandomUnits final : public CompressorWithOptions {
 public:
  RandomUnits(CompressionOptions options, TextUnit unit, uint64_t seed)
      : CompressorWithOptions(std::move(options)), unit_(unit), seed_(seed) {}

  Result<PromptRest> compress(const PromptView& prompt, PromptScores&, int64_t budget) const override {
    const CompressionTask task = CompressionTask::create(prompt, options_, budget);
    const std::vector<TokenRange> units = split_units(prompt.texts, task.fixed, unit_);
    std::vector<size_t> order(units.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, {}, [&](size_t i) { return std::pair(philox_uniform(seed_, kRandomUnits, i), i); });
    std::vector<char> dropped(prompt.tokens.size());
    int64_t left = task.droppable;
    const bool all = task.droppable < std::ssize(prompt.tokens);  // something else remains
    for (size_t i = 0; i + (all ? 0 : 1) < order.size() && left > task.keep; ++i) {
      std::fill_n(dropped.begin() + units[order[i]].first, units[order[i]].count, char{1});
      left -= units[order[i]].count;
    }
    return PromptRest{remaining(dropped)};
  }

 private:
  const TextUnit unit_;
  const uint64_t seed_;
};

}  // namespace

Result<std::unique_ptr<PromptCompressor>> make_random_units(const OptionValues& options) {
  MILLRACE_TRY(auto shared, CompressionOptions::read(options, false, false));
  MILLRACE_TRY(const TextUnit unit, find_text_unit(options.text("unit")));
  const auto seed = static_cast<uint64_t>(options.integer("seed"));
  return std::unique_ptr<PromptCompressor>(std::make_unique<RandomUnits>(std::move(shared), unit, seed));
}

}  // namespace millrace
