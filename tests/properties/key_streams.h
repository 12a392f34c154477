// Engines whose keys are in a file (KV tier disk), for tests.
#pragma once

#include "properties/stream_bits.h"

namespace millrace::testing {

inline std::string stream_tier(int64_t memory, bool ahead) {
  return "disk:path=" + ::testing::TempDir() + ",memory=" + std::to_string(memory) +
         ",ahead=" + std::to_string(static_cast<int>(ahead));
}

// The least memory with which an engine of these options starts: nearly all of its blocks are in the file.
inline int64_t least_stream_memory(const std::shared_ptr<const LanguageModel>& model, EngineOptions o) {
  int64_t below = 0, enough = int64_t{64} << 20;
  while (enough - below > 1024) {
    const int64_t middle = below + (enough - below) / 2;
    o.kv_tier = stream_tier(middle, true);
    (EngineCore::create(model, o).ok() ? enough : below) = middle;
  }
  return enough;
}

}  // namespace millrace::testing
