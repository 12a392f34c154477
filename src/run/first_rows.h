// FirstRows: hidden states of drafted tokens behind the model's first layers, which drafted them (LayerSkip). The step
// that verifies the tokens continues behind these layers. Filled by SelfRunner while it drafts; StepPass reads the rows
// in the step's pass and clears them behind it. Engine thread only.
#pragma once

#include <algorithm>
#include <compare>
#include <span>
#include <vector>

#include "flow/sequence.h"

namespace millrace {

class FirstRows {
 public:
  // Rows of up to `tokens` tokens of `width` values, behind the first `layers` layers of the model.
  FirstRows(int64_t layers, int64_t width, int64_t tokens) : layers_(layers), width_(width) {
    places_.reserve(static_cast<size_t>(tokens));
    values_.resize(static_cast<size_t>(tokens * width));
  }
  static int64_t memory(int64_t width, int64_t tokens) {
    return tokens * (4 * width + static_cast<int64_t>(sizeof(Place)));
  }

  int64_t layers() const { return layers_; }
  bool empty() const { return places_.empty(); }
  void clear() { places_.clear(); }
  // The row of the stream's token `index`. Without room nothing is stored, and the step computes the token again.
  void add(RequestId stream, int64_t index, std::span<const float> row) {
    const size_t at = places_.size() * static_cast<size_t>(width_);
    if (at + row.size() > values_.size()) return;
    std::ranges::copy(row, values_.begin() + static_cast<ptrdiff_t>(at));
    places_.push_back({stream, index, static_cast<int64_t>(at)});
  }
  // Called once behind the last add(), before find().
  void sort() { std::ranges::sort(places_); }
  // Null: the token has not run, or there was no room.
  const float* find(RequestId stream, int64_t index) const {
    const Place place{stream, index, 0};
    const auto found = std::ranges::lower_bound(places_, place);
    return found != places_.end() && found->stream == stream && found->index == index ? values_.data() + found->at
                                                                                      : nullptr;
  }

 private:
  struct Place {
    RequestId stream;
    int64_t index;
    int64_t at;  // in values_
    auto operator<=>(const Place&) const = default;
  };

  int64_t layers_, width_;
  std::vector<Place> places_;
  std::vector<float> values_;
};

}  // namespace millrace
