// DocumentChoice: finds for each row of a unit the documents whose keys receive most of its attention, at most `most`
// of them (DocumentWeights::most). It compares the sums of the keys' weights; of documents with equal sums, it keeps
// the earlier one. Allocates nothing; not thread-safe.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "flow/batch.h"

namespace millrace {

class DocumentChoice {
 public:
  static int64_t floats(int64_t rows) { return rows * (2 + 2 * kMaxChosenDocuments); }

  // `memory`: floats(rows).
  DocumentChoice(float* memory, int64_t rows, int32_t most)
      : rows_(rows),
        most_(std::min(most, kMaxChosenDocuments)),
        max_(memory),
        sum_(max_ + rows),
        best_(sum_ + rows),
        documents_(best_ + rows * kMaxChosenDocuments) {}

  void clear() {
    std::fill_n(sum_, rows_, 0.0f);
    std::fill_n(best_, rows_ * kMaxChosenDocuments, kNone);
    std::fill_n(documents_, rows_ * kMaxChosenDocuments, 0.0f);
    document_ = 0;
  }

  // Adds some keys of a document. `max`: their maximum score. `sum`: their weights relative to that maximum, summed.
  // All keys of a document are added before those of the next one.
  void add(int32_t document, int64_t row, float max, float sum) {
    if (document != document_) finish();
    document_ = document;
    if (sum == 0) return;
    if (sum_[row] == 0) {
      max_[row] = max;
      sum_[row] = sum;
      return;
    }
    const float top = std::max(max, max_[row]);
    sum_[row] = sum_[row] * std::exp(max_[row] - top) + sum * std::exp(max - top);
    max_[row] = top;
  }

  // Called after the last document is added.
  void finish() {
    for (int64_t row = 0; row < rows_; ++row) {
      if (sum_[row] == 0) continue;
      insert(row, max_[row] + std::log(sum_[row]));
      sum_[row] = 0;
    }
  }

  bool has(int64_t row, int32_t document) const {
    const float* first = documents_ + row * kMaxChosenDocuments;
    return std::find(first, first + most_, static_cast<float>(document)) != first + most_;
  }

 private:
  static constexpr float kNone = -std::numeric_limits<float>::infinity();

  void insert(int64_t row, float share) {
    float* best = best_ + row * kMaxChosenDocuments;
    float* documents = documents_ + row * kMaxChosenDocuments;
    int32_t at = most_;
    while (at > 0 && !(best[at - 1] >= share)) --at;
    if (at == most_) return;
    std::copy_backward(best + at, best + most_ - 1, best + most_);
    std::copy_backward(documents + at, documents + most_ - 1, documents + most_);
    best[at] = share;
    documents[at] = static_cast<float>(document_);
  }

  int64_t rows_;
  int32_t most_, document_ = 0;
  float *max_, *sum_;  // [rows], of the document that is being added
  float* best_;        // [rows, kMaxChosenDocuments], descending: logarithms of the sums
  float* documents_;   // [rows, kMaxChosenDocuments]: their numbers, which floats hold exactly
};

}  // namespace millrace
