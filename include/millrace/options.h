// How a model is loaded and an engine is sized. Every field is a command-line flag and a config-file key.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace millrace {

// What context 0 means for models trained on more.
inline constexpr int64_t kDefaultContext = 8192;

struct LoadOptions {
  int threads = 0;       // for repacking; 0: every available core
  int64_t context = 0;   // longest stream, tokens; 0: the trained length, at most kDefaultContext
  std::function<void(double)> progress;  // fraction done, called on the loading thread; may be null
};

struct EngineOptions {
  int threads = 0;             // of one forward pass; 0: every available core
  int64_t context = 0;         // longest stream, tokens; 0: what the model was loaded for
  int64_t max_streams = 8;     // running at once; more wait in the queue
  int64_t queue = 1024;        // waiting at most; more are refused
  int64_t kv_tokens = 0;       // KV cache size in tokens over all streams; 0: max_streams x context, at most 64k
  std::string kv_format = "f16";  // f32, f16, bf16, q8_0
  int64_t block_tokens = 16;   // tokens per KV block
  int64_t batch_tokens = 512;  // most tokens in one step; longer prompts run in chunks
  bool prefix_cache = true;    // keep finished streams' full blocks for prompts that begin alike
  std::string prefix_evict = "lru";  // which of those go first: lru, lfu, length_aware
};

}  // namespace millrace
