// SkippedBlocks: mixers and MLPs that a pass leaves out, as if their outputs were zero: the next block reads the
// residual that the one before it left. A model drafts for itself this way (run/drafting/self_runner.h). A skipped
// mixer stores no keys.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace {

struct SkippedBlocks {
  // By layer; 1: left out. Both have an entry for each layer.
  std::vector<uint8_t> attention, mlp;

  bool mixer_of(int64_t layer) const { return attention[static_cast<size_t>(layer)] != 0; }
  bool mlp_of(int64_t layer) const { return mlp[static_cast<size_t>(layer)] != 0; }
  bool operator==(const SkippedBlocks&) const = default;
};

}  // namespace millrace
