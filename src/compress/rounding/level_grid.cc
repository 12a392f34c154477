#include "compress/rounding/level_grid.h"

#include <algorithm>
#include <cmath>

namespace millrace {

LevelGrid::LevelGrid(const Format& format)
    : format_(&format),
      grid_(static_cast<size_t>(format.levels * format.block_values)),
      clamped_(static_cast<size_t>(format.block_values)),
      block_(static_cast<size_t>(format.block_bytes)) {}

void LevelGrid::read(const uint8_t* block) {
  const int values = format_->block_values;
  std::copy_n(block, block_.size(), block_.begin());
  for (int level = 0; level < format_->levels; ++level) {
    for (int j = 0; j < values; ++j) format_->set_level(block_.data(), j, level);
    format_->decode(block_.data(), &grid_[static_cast<size_t>(level * values)], values);
  }
}

void LevelGrid::read(const uint8_t* block, int value) {
  const int values = format_->block_values;
  std::copy_n(block, block_.size(), block_.begin());
  for (int level = 0; level < format_->levels; ++level) {
    format_->set_level(block_.data(), value, level);
    format_->decode(block_.data(), clamped_.data(), values);
    grid_[static_cast<size_t>(level * values + value)] = clamped_[static_cast<size_t>(value)];
  }
}

int LevelGrid::nearest(int value, double x) const {
  int best = 0;
  double distance = std::fabs(x - at(value, 0));
  for (int level = 1; level < format_->levels; ++level) {
    const double other = std::fabs(x - at(value, level));
    if (other >= distance) continue;
    distance = other;
    best = level;
  }
  return best;
}

double LevelGrid::error(const float* values, const double* weights) const {
  double sum = 0;
  for (int j = 0; j < format_->block_values; ++j) {
    const double difference = values[j] - at(j, nearest(j, values[j]));
    sum += weights[j] * difference * difference;
  }
  return sum;
}

void LevelGrid::choose(const float* values, const double* weights, int clips, ScaleSearch* search, uint8_t* block) {
  const int n = format_->block_values;
  if (search) {
    search->choose(values, weights, block);
    return read(block);
  }
  format_->encode(values, block, n);
  read(block);
  if (clips == 0) return;
  const auto [low, high] = std::minmax_element(values, values + n);
  double best = error(values, weights);
  std::vector<uint8_t> candidate(block_.size());
  for (int k = 1; k <= clips; ++k) {
    const float part = 1.0f - static_cast<float>(k) / 32.0f;
    const float least = std::min(*low, 0.0f) * part, most = std::max(*high, 0.0f) * part;
    for (int j = 0; j < n; ++j) clamped_[static_cast<size_t>(j)] = std::clamp(values[j], least, most);
    format_->encode(clamped_.data(), candidate.data(), n);
    read(candidate.data());
    if (const double found = error(values, weights); found < best) {
      best = found;
      std::copy(candidate.begin(), candidate.end(), block);
    }
  }
  read(block);
}

}  // namespace millrace
