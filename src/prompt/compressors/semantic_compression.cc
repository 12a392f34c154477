// Semantic compression (Fei et al., 2023, Extending Context Window of Large Language Models via Semantic Compression):
// the sentences of a text are a graph of their similarities, whose communities are its topics, and each topic is
// summarized. The paper summarizes by a model; here the central sentences of a topic are its summary. Topics share the
// budget: the most central sentence of each remains first, of the largest topic at first, then the second ones.
//
//   sentences   1 2 3 4 5 6      similarities   1-2-5, 3-4, 6      topics {1,2,5} {3,4} {6}
//   order       2 3 6 5 4 1                     as many as fit, in the order of the text
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "prompt/compressors/factories.h"
#include "prompt/text_communities.h"
#include "prompt/text_similarity.h"

namespace millrace {
namespace {

class SemanticCompression final : public CompressorWithOptions {
 public:
  SemanticCompression(CompressionOptions options, bool by_part, bool center)
      : CompressorWithOptions(std::move(options)), by_part_(by_part), center_(center) {}

  PromptNeeds needs() const override { return kNeedsEmbeddings; }

  Result<PromptRest> compress(const PromptView& prompt, PromptScores& scores, int64_t budget) const override {
    const CompressionTask task = CompressionTask::create(prompt, options_, budget);
    const std::vector<TokenRange> texts = unit_texts(prompt, task, by_part_);
    if (std::ssize(texts) > kMaxTexts)
      return Error::user(
          fmt::format("prompt semantic_compression: the prompt has {} sentences; at most {} are compared", texts.size(),
                      kMaxTexts));
    if (texts.empty()) return PromptRest{keep_texts(task, texts, {})};
    MILLRACE_TRY(const auto vectors, embed_ranges(prompt, texts, options_.model, center_, scores));
    return PromptRest{keep_texts(task, texts, by_topics(similarities(vectors), texts.size()))};
  }

 private:
  static constexpr int64_t kMaxTexts = 2048;  // the graph has a weight for each pair

  // [texts, texts]; without those below zero, and without loops.
  static std::vector<double> similarities(const std::vector<std::vector<float>>& vectors) {
    const size_t size = vectors.size();
    std::vector<double> out(size * size);
    for (size_t i = 0; i < size; ++i)
      for (size_t j = 0; j < i; ++j) out[i * size + j] = out[j * size + i] = std::max(0.0, dot(vectors[i], vectors[j]));
    return out;
  }

  // The texts in the order in which they are kept.
  static std::vector<size_t> by_topics(const std::vector<double>& weights, size_t size) {
    const std::vector<int64_t> topics = find_communities(weights, static_cast<int64_t>(size));
    std::vector<double> central(size);  // similarity to the rest of the topic
    std::vector<int64_t> members(size);
    for (size_t i = 0; i < size; ++i) {
      ++members[static_cast<size_t>(topics[i])];
      for (size_t j = 0; j < size; ++j)
        if (topics[i] == topics[j]) central[i] += weights[i * size + j];
    }
    std::vector<size_t> order(size);
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, {}, [&](size_t i) { return std::tuple(topics[i], -central[i], i); });
    std::vector<int64_t> place(size), next(size);  // place of a text within its topic
    for (const size_t i : order) place[i] = next[static_cast<size_t>(topics[i])]++;
    std::ranges::sort(
        order, {}, [&](size_t i) { return std::tuple(place[i], -members[static_cast<size_t>(topics[i])], topics[i]); });
    return order;
  }

  const bool by_part_;  // true: documents are the vertices instead of sentences
  const bool center_;
};

}  // namespace

Result<std::unique_ptr<PromptCompressor>> make_semantic_compression(const OptionValues& options) {
  MILLRACE_TRY(auto shared, CompressionOptions::read(options, true, true));
  MILLRACE_TRY(const bool by_part, find_by_part(options.text("unit")));
  return std::unique_ptr<PromptCompressor>(
      std::make_unique<SemanticCompression>(std::move(shared), by_part, options.boolean("center")));
}

}  // namespace millrace
