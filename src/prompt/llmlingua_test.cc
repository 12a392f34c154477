// LLMLingua against a plain definition over drawn prompts, and by hand.
#include <cmath>

#include "prompt/compression_task.h"
#include "prompt/prompt_words_test.h"

namespace millrace {
namespace {

using Texts = std::vector<int64_t>;  // tokens by index

// The information of `token` after `context`, as the compressor asks for it: in float, the first token of all has none.
double information(const RepeatingModel& model, const WordPrompt& prompt, const Texts& context, int64_t token) {
  std::vector<TokenId> ids;
  for (const int64_t index : context) ids.push_back(prompt.tokens[static_cast<size_t>(index)]);
  const TokenId id = prompt.tokens[static_cast<size_t>(token)];
  return ids.empty() ? std::numeric_limits<double>::infinity()
                     : static_cast<double>(static_cast<float>(model.after(ids, id)));
}

// The mean information of a part after the start token.
double perplexity(const RepeatingModel& model, const WordPrompt& prompt, TokenRange part) {
  Texts context = {0};
  double sum = 0;
  for (int64_t i = part.first; i < part.first + part.count; ++i) {
    sum += information(model, prompt, context, i);
    context.push_back(i);
  }
  return sum / static_cast<double>(part.count);
}

// Prompts are drawn: <s>, then lines, then a question.
Texts plain_llmlingua(const WordPrompt& prompt, double rate, double coarse, int64_t segment) {
  const RepeatingModel model;
  const auto task = CompressionTask::create(prompt.view(), {.rate = rate}, kAnyBudget);
  std::vector<std::pair<double, size_t>> ranked;
  for (size_t i = 0; i < task.parts.size(); ++i) ranked.emplace_back(-perplexity(model, prompt, task.parts[i]), i);
  std::ranges::sort(ranked);
  std::vector<char> chosen(task.parts.size());
  const double most = coarse * static_cast<double>(task.keep);
  int64_t tokens = 0;
  for (const auto& [unused, part] : ranked) {
    if (static_cast<double>(task.droppable) > most && static_cast<double>(tokens) >= std::ceil(most)) break;
    chosen[part] = 1;
    tokens += task.parts[part].count;
  }
  Texts all, context = {0};
  for (size_t i = 0; i < task.parts.size(); ++i)
    for (int64_t t = 0; chosen[i] && t < task.parts[i].count; ++t) all.push_back(task.parts[i].first + t);
  const int64_t size = std::ssize(all);
  // The share of a part is a difference of rounded sums; of a segment too.
  const int64_t keep = std::min(task.keep, size);
  for (int64_t begin = 0; begin < size; begin += segment) {
    const int64_t end = std::min(size, begin + segment);
    const int64_t most_here = keep * end / size - keep * begin / size;
    Texts before = context;
    std::vector<std::pair<double, int64_t>> scored;
    for (int64_t i = begin; i < end; ++i) {
      scored.emplace_back(-information(model, prompt, before, all[static_cast<size_t>(i)]),
                          all[static_cast<size_t>(i)]);
      before.push_back(all[static_cast<size_t>(i)]);
    }
    std::ranges::sort(scored);
    Texts kept;
    for (int64_t i = 0; i < most_here; ++i) kept.push_back(scored[static_cast<size_t>(i)].second);
    std::ranges::sort(kept);
    context.insert(context.end(), kept.begin(), kept.end());
  }
  for (int64_t i = 0; i < task.question.count; ++i) context.push_back(task.question.first + i);
  return context;
}

TEST(LlmLingua, KeepsWhatThePlainDefinitionKeeps) {
  for (uint64_t seed = 0; seed < 120; ++seed) {
    const WordPrompt prompt = drawn_prompt(seed, 1 + static_cast<int64_t>(seed % 7));
    const double rate = static_cast<double>(seed % 10 + 1) / 11, coarse = 1 + static_cast<double>(seed % 3) / 2;
    const int64_t segment = 1 + static_cast<int64_t>(seed % 13);
    const auto made =
        make_prompt_compressor("llmlingua:rate=" + std::to_string(rate) + ",coarse=" + std::to_string(coarse) +
                               ",segment=" + std::to_string(segment));
    ASSERT_TRUE(made.ok()) << made.error().message;
    RepeatingModel model;
    const auto rest = (*made)->compress(prompt.view(), model, kAnyBudget);
    ASSERT_TRUE(rest.ok()) << rest.error().message;
    EXPECT_EQ(rest->kept, plain_llmlingua(prompt, std::stod(std::to_string(rate)), coarse, segment)) << seed;
  }
}

TEST(LlmLingua, ByHand) {
  RepeatingModel model;
  model.costs = {{"a", 1}, {" b", 1}, {"c", 9}, {" d", 5}, {" e", 7}, {"f", 2}, {" g", 3}, {"\n", 0.5}};
  const WordPrompt prompt("[<s>]a b\nc d e\nf g\nWho ?");
  // Means: a b 0.83, c d e 5.4, f g 1.8. Three of ten tokens remain, chosen from six or more: c d e, then f g.
  EXPECT_EQ(compressed_text("llmlingua:rate=0.3", prompt, model), "<s>c d eWho ?");
  EXPECT_EQ(model.asked.size(), 4u);  // three parts, and one segment
  // In segments of four, one of c d e and the line break remains, and two of f g and theirs.
  EXPECT_EQ(compressed_text("llmlingua:rate=0.3,segment=4", prompt, model), "<s>cf gWho ?");
  EXPECT_EQ(compressed_text("llmlingua:rate=1", prompt, model), "<s>a b\nc d e\nf g\nWho ?");
}

}  // namespace
}  // namespace millrace
