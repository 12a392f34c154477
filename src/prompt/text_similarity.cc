#include "prompt/text_similarity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

void subtract_mean(std::vector<std::vector<float>>& vectors) {
  std::vector<double> mean(vectors.front().size());
  for (const auto& vector : vectors)
    for (size_t i = 0; i < mean.size(); ++i)
      mean[i] += static_cast<double>(vector[i]) / static_cast<double>(vectors.size());
  for (auto& vector : vectors) {
    for (size_t i = 0; i < mean.size(); ++i) vector[i] -= static_cast<float>(mean[i]);
    const double length = std::sqrt(dot(vector, vector));
    for (float& value : vector) value = length > 0 ? static_cast<float>(static_cast<double>(value) / length) : 0;
  }
}

bool is_blank_range(const PromptView& prompt, TokenRange range) {
  const auto texts = prompt.texts.subspan(static_cast<size_t>(range.first), static_cast<size_t>(range.count));
  return std::ranges::all_of(
      texts, [](const std::string& text) { return text.find_first_not_of(" \t\r\n\f\v") == std::string::npos; });
}

}  // namespace

Result<bool> find_by_part(std::string_view name) {
  if (name == "sentence" || name == "part") return name == "part";
  return Error::user(fmt::format("unit: expected sentence or part, got '{}'", name));
}

std::vector<TokenRange> unit_texts(const PromptView& prompt, const CompressionTask& task, bool by_part) {
  if (by_part) return task.parts;
  std::vector<TokenRange> out;
  std::vector<char> others(task.fixed.size(), 1);
  for (const TokenRange& part : task.parts) {
    std::fill_n(others.begin() + part.first, part.count, char{0});
    const size_t first = out.size();
    for (const TokenRange& sentence : split_units(prompt.texts, others, TextUnit::sentence)) {
      if (out.size() > first && is_blank_range(prompt, sentence))
        out.back().count += sentence.count;
      else
        out.push_back(sentence);
    }
    std::fill_n(others.begin() + part.first, part.count, char{1});
  }
  return out;
}

Result<std::vector<std::vector<float>>> embed_ranges(const PromptView& prompt, std::span<const TokenRange> texts,
                                                     const std::string& model, bool center, PromptScores& scores) {
  std::vector<std::vector<TokenId>> tokens;
  for (const TokenRange& text : texts) {
    const auto own = prompt.tokens.subspan(static_cast<size_t>(text.first), static_cast<size_t>(text.count));
    tokens.emplace_back(own.begin(), own.end());
  }
  MILLRACE_TRY(auto vectors, scores.embeddings(model, tokens));
  if (center && vectors.size() > 2) subtract_mean(vectors);
  return vectors;
}

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

std::vector<int64_t> keep_texts(const CompressionTask& task, std::span<const TokenRange> texts,
                                std::span<const size_t> order) {
  std::vector<char> dropped(task.fixed.size());
  for (size_t i = 0; i < dropped.size(); ++i) dropped[i] = !task.fixed[i];
  int64_t left = task.keep;
  for (const size_t i : order) {
    if (texts[i].count > left) continue;
    std::fill_n(dropped.begin() + texts[i].first, texts[i].count, char{0});
    left -= texts[i].count;
  }
  if (left == task.keep && !order.empty())
    std::fill_n(dropped.begin() + texts[order[0]].first, std::min(left, texts[order[0]].count), char{0});
  return remaining(dropped);
}

}  // namespace millrace
