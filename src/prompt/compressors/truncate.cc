// The other baseline: one side of the text is cut off, as clients do that shorten prompts themselves.
#include <algorithm>

#include "prompt/compression_task.h"
#include "prompt/compressors/factories.h"

namespace millrace {
namespace {

enum class CutSide { start, middle, end };

class Truncate final : public CompressorWithOptions {
 public:
  Truncate(CompressionOptions options, CutSide side) : CompressorWithOptions(std::move(options)), side_(side) {}

  Result<PromptRest> compress(const PromptView& prompt, PromptScores&, int64_t budget) const override {
    const CompressionTask task = CompressionTask::create(prompt, options_, budget);
    const int64_t cut = task.droppable - task.keep;
    const int64_t first = side_ == CutSide::start ? 0 : side_ == CutSide::end ? task.keep : task.keep / 2;
    std::vector<char> dropped(prompt.tokens.size());
    int64_t at = 0;  // number among the tokens that may be dropped
    for (size_t i = 0; i < dropped.size(); ++i) {
      if (task.fixed[i]) continue;
      dropped[i] = at >= first && at < first + cut;
      ++at;
    }
    return PromptRest{remaining(dropped)};
  }

 private:
  const CutSide side_;
};

Result<CutSide> find_cut_side(std::string_view name) {
  if (name == "start") return CutSide::start;
  if (name == "middle") return CutSide::middle;
  if (name == "end") return CutSide::end;
  return Error::user("cut: expected start, middle or end, got '" + std::string(name) + "'");
}

}  // namespace

Result<std::unique_ptr<PromptCompressor>> make_truncate(const OptionValues& options) {
  MILLRACE_TRY(auto shared, CompressionOptions::read(options, false, false));
  MILLRACE_TRY(const CutSide side, find_cut_side(options.text("cut")));
  return std::unique_ptr<PromptCompressor>(std::make_unique<Truncate>(std::move(shared), side));
}

}  // namespace millrace
