// How a model is loaded and an engine is sized. Every field is a command-line flag and a config-file key.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace millrace {

class MemoryAccounts;  // base/memory_accounts.h

// What context 0 means for models trained on more.
inline constexpr int64_t kDefaultContext = 8192;

struct LoadOptions {
  int threads = 0;      // for repacking; 0: every available core
  int64_t context = 0;  // longest stream, tokens; 0: the trained length, at most kDefaultContext
  // Keeps the packed weights in a file and maps that at the next start, which then takes no time to speak of. A file of
  // another model, instruction set or version, or a damaged one, is written anew.
  // Most memory, in bytes, that the model and the engines over it take of the system, everything counted; what does not
  // fit is refused. 0: as much as there is.
  int64_t memory = 0;
  bool packed_cache = false;
  std::string packed_cache_path;     // "": NAME.millrace-packed beside the model, or in the user's cache folder
  bool verify_packed_cache = false;  // pack everything anew and compare; its checksums are compared at every start
  // A budget that several models share, in place of `memory`; null: none. The model is `memory_name` there.
  std::shared_ptr<MemoryAccounts> shared_memory;
  std::string memory_name;
  std::string chat_template;                     // in the place of the model's own; "": that one
  std::function<void(double)> progress;          // fraction done, called on the loading thread; may be null
  std::function<void(const std::string&)> warn;  // what went wrong and was got around; may be null
};

struct EngineOptions {
  int threads = 0;          // of one forward pass; 0: every available core
  int64_t context = 0;      // longest stream, tokens; 0: what the model was loaded for
  int64_t max_streams = 8;  // running at once; more wait in the queue
  int64_t queue = 1024;     // waiting at most; more are refused
  int64_t kv_tokens = 0;    // KV cache size in tokens over all streams; 0: what the memory budget leaves, without one
                            // max_streams x context, at most 64k
  std::string kv_format = "f16";  // f32, f16, bf16, q8_0
  int64_t block_tokens = 16;      // tokens per KV block; raised to whole pages where kv_pool asks for them
  std::string kv_pool =
      "paged";                 // or virtual: each stream's blocks follow each other; a block is then whole memory pages
  int64_t batch_tokens = 512;  // most tokens in one step; longer prompts run in chunks
  bool prefix_cache = true;    // keep finished streams' full blocks for prompts that begin alike
  std::string prefix_evict = "lru";  // which of those go first: lru, lfu, length_aware, importance
  std::string policy = "fcfs";       // who runs when: NAME[:key=value,...]; `millrace techniques --family policy`
  int64_t resident_streams = 0;      // streams that may hold KV blocks, running or paused; 0: max_streams
  int64_t swap_tokens = 0;  // host memory for streams that had to give way, in tokens; 0: they are computed again
  std::string kv_ssd;       // file that blocks go to when they leave the prefix cache, and come back from; "": none
  int64_t kv_ssd_size = int64_t{8} << 30;  // of that file at most, bytes
  std::string kv_ssd_order = "arrival";    // of blocks in that file and of reading them: arrival, or importance, by the
                                           // attention that prompts pay them
  double kv_ssd_fetch = 1;  // of the blocks found there, so much is fetched, by importance, and the rest left out of
                            // the stream's attention: below 1 answers change
  std::string cost_model;   // what steps and loads take, for those who decide by it (`millrace bench --calibrate`); "":
                            // learned as it runs
  std::vector<std::string> adapters;  // LoRA adapters to begin with, [NAME=]PATH each
  int64_t constraint_memory = 0;      // of a memory budget, kept for structured output; 0: a sixteenth, 64 MiB at most,
                                      // what the vocabulary needs at least
  std::string record_plans;           // file that every step's plan is written to, one a line; "": none
};

// Of EngineOptions::adapters: the name before '=', or the file's or folder's without its extension, and the path.
std::pair<std::string, std::string> named_adapter(const std::string& given);

}  // namespace millrace
