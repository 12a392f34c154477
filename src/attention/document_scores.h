// Changes one query's scores of documents' keys as a document context does (KeySegment, DocumentWeights). Used by
// observers of attention that have all scores of a query at once. The softmax of the changed scores gives keys the same
// weights as attend_visible(). Allocates nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "attention/document_choice.h"

namespace millrace {

// Changes `scores`, which are by slot and before the softcap. `each(use)` must call use(begin, end, segment) for the
// slots that the query sees, segment by segment in order. Returns the number of scores that are set to -infinity,
// because their documents were not chosen.
template <typename Each>
int64_t weigh_documents(const Each& each, const DocumentWeights& weights, float softcap, float* scores) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  std::array<float, 2 + 2 * kMaxChosenDocuments> memory;
  DocumentChoice choice(memory.data(), 1, weights.most > 0 ? weights.most : 1);
  choice.clear();
  float max = kNone, sum = 0;  // over the keys of documents that count
  const auto add = [&](int64_t begin, int64_t end, int32_t document) {
    const float most = *std::max_element(scores + begin, scores + end);
    float own = 0;
    for (int64_t i = begin; i < end; ++i) own += std::exp(scores[i] - most);
    if (weights.most > 0 && document > 0) return choice.add(document, 0, most, own);
    const float top = std::max(max, most);
    sum = sum * std::exp(max - top) + own * std::exp(most - top);
    max = top;
  };
  each([&](int64_t begin, int64_t end, const KeySegment& segment) {
    for (int64_t i = begin; i < end; ++i) {
      const float score = scores[i] * segment.scale;
      scores[i] = (softcap > 0 ? softcap * std::tanh(score / softcap) : score) + segment.bias;
    }
    if (segment.document > 0) add(begin, end, segment.document);
  });
  int64_t hidden = 0;
  if (weights.most > 0) {
    choice.finish();
    each([&](int64_t begin, int64_t end, const KeySegment& segment) {
      if (segment.document == 0) return;
      if (choice.has(0, segment.document)) return add(begin, end, 0);
      std::fill(scores + begin, scores + end, kNone);
      hidden += end - begin;
    });
  }
  if (weights.power == 1 || sum == 0) return hidden;
  const float shift = (weights.power - 1) * (max + std::log(sum));
  each([&](int64_t begin, int64_t end, const KeySegment& segment) {
    if (segment.document == 0) return;
    for (int64_t i = begin; i < end; ++i) scores[i] += shift;
  });
  return hidden;
}

}  // namespace millrace
