// RECOMP's extractive compressor (Xu et al., 2023, RECOMP: Improving Retrieval-Augmented LMs with Compression and
// Selective Augmentation): sentences are embedded as the question is, and those nearest to it remain, in their order.
// The paper trains an encoder for this; here `model` names an embedding model, or the mean hidden states of the model
// that answers are taken. Such states of all texts are alike, so their mean over the prompt is subtracted first.
#include <algorithm>
#include <numeric>
#include <utility>

#include "prompt/compressors/factories.h"
#include "prompt/text_similarity.h"

namespace millrace {
namespace {

class RecompExtractive final : public CompressorWithOptions {
 public:
  RecompExtractive(CompressionOptions options, bool by_part, bool center)
      : CompressorWithOptions(std::move(options)), by_part_(by_part), center_(center) {}

  PromptNeeds needs() const override { return kNeedsEmbeddings; }

  Result<PromptRest> compress(const PromptView& prompt, PromptScores& scores, int64_t budget) const override {
    const CompressionTask task = CompressionTask::create(prompt, options_, budget);
    std::vector<TokenRange> texts = unit_texts(prompt, task, by_part_);
    const size_t count = texts.size();
    if (task.question.count > 0) texts.push_back(task.question);
    std::vector<double> near(count);
    if (count > 0) {
      MILLRACE_TRY(const auto vectors, embed_ranges(prompt, texts, options_.model, center_, scores));
      for (size_t i = 0; i < count; ++i) near[i] = dot(vectors[i], vectors.back());
    }
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, {}, [&](size_t i) { return std::pair(-near[i], i); });
    texts.resize(count);
    return PromptRest{keep_texts(task, texts, order)};
  }

 private:
  const bool by_part_;  // true: documents remain whole instead of sentences
  const bool center_;
};

}  // namespace

Result<std::unique_ptr<PromptCompressor>> make_recomp_extractive(const OptionValues& options) {
  MILLRACE_TRY(auto shared, CompressionOptions::read(options, true, true));
  MILLRACE_TRY(const bool by_part, find_by_part(options.text("unit")));
  return std::unique_ptr<PromptCompressor>(
      std::make_unique<RecompExtractive>(std::move(shared), by_part, options.boolean("center")));
}

}  // namespace millrace
