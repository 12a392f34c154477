#include "attention/key_turns.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

constexpr int64_t kTableFloats = 16;  // tables begin at multiples of a cache line

int64_t whole_lines(int64_t floats) { return (floats + kTableFloats - 1) / kTableFloats * kTableFloats; }

// Floats of the parts of one rotation's tables.
struct TableSizes {
  int64_t blocks, rows, offsets, whole_offsets;
  TableSizes(int64_t pairs, int64_t block_tokens, int64_t context)
      : blocks(whole_lines(2 * pairs * (context / block_tokens + 1))),
        rows(whole_lines(2 * pairs * block_tokens)),
        offsets(2 * pairs * kTurnTokens),
        whole_offsets(offsets / 2) {}
  int64_t all() const { return blocks + rows + offsets + whole_offsets; }
};

// The first of the layers with the same rotation.
size_t first_like(std::span<const KeyRope> ropes, size_t layer) {
  const auto like = [&](const KeyRope& other) { return other.frequencies == ropes[layer].frequencies; };
  return static_cast<size_t>(std::ranges::find_if(ropes, like) - ropes.begin());
}

int64_t all_floats(std::span<const KeyRope> ropes, int64_t block_tokens, int64_t context) {
  int64_t floats = 0;
  for (size_t i = 0; i < ropes.size(); ++i)
    if (first_like(ropes, i) == i) floats += TableSizes(std::ssize(ropes[i].frequencies), block_tokens, context).all();
  return floats;
}

// [slot][cos, sin][pairs]; slots `step` apart.
void turn_slots(const std::vector<double>& frequencies, int64_t slots, int64_t step, float* out) {
  const auto pairs = std::ssize(frequencies);
  for (int64_t i = 0; i < slots; ++i, out += 2 * pairs) {
    for (int64_t p = 0; p < pairs; ++p) {
      const double angle = static_cast<double>(i * step) * frequencies[static_cast<size_t>(p)];
      out[p] = static_cast<float>(std::cos(angle));
      out[pairs + p] = static_cast<float>(std::sin(angle));
    }
  }
}

void turn_offsets(const std::vector<double>& frequencies, float* out, int16_t* whole) {
  for (const double frequency : frequencies) {
    for (int64_t part = 0; part < 2; ++part) {
      for (int64_t i = 0; i < kTurnTokens; ++i) {
        const double angle = static_cast<double>(i) * frequency, x = part == 0 ? std::cos(angle) : std::sin(angle);
        *out++ = static_cast<float>(x);
        *whole++ = static_cast<int16_t>(std::lround(x * 32767));
      }
    }
  }
}

}  // namespace

int64_t KeyTurnTables::bytes(std::span<const KeyRope> ropes, int64_t block_tokens, int64_t context) {
  return all_floats(ropes, block_tokens, context) * static_cast<int64_t>(sizeof(float));
}

Result<KeyTurnTables> KeyTurnTables::create(std::span<const KeyRope> ropes, int64_t block_tokens, int64_t context) {
  KeyTurnTables out;
  MILLRACE_TRY(out.memory_, AlignedBuffer::allocate(bytes(ropes, block_tokens, context), "activations"));
  auto* next = out.memory_.as<float>();
  for (size_t i = 0; i < ropes.size(); ++i) {
    const std::vector<double>& frequencies = ropes[i].frequencies;
    const auto pairs = std::ssize(frequencies);
    if (const size_t like = first_like(ropes, i); like < i) {
      out.turns_.push_back(out.turns_[like]);
      out.turns_.back().half = ropes[i].half;
      continue;
    }
    const TableSizes sizes(pairs, block_tokens, context);
    float *blocks = next, *rows = blocks + sizes.blocks, *offsets = rows + sizes.rows;
    auto* whole_offsets = reinterpret_cast<int16_t*>(offsets + sizes.offsets);
    next += sizes.all();
    turn_slots(frequencies, context / block_tokens + 1, block_tokens, blocks);
    turn_slots(frequencies, block_tokens, 1, rows);
    turn_offsets(frequencies, offsets, whole_offsets);
    out.turns_.push_back({.pairs = pairs,
                          .half = ropes[i].half,
                          .blocks = blocks,
                          .rows = rows,
                          .offsets = offsets,
                          .whole_offsets = whole_offsets});
  }
  return out;
}

const KeyTurns& KeyTurnTables::of(int64_t layer) const {
  static constexpr KeyTurns kNone;
  return layer < std::ssize(turns_) ? turns_[static_cast<size_t>(layer)] : kNone;
}

}  // namespace millrace
