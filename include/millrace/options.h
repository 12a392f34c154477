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

// The largest default context; models trained on more need an explicit one.
inline constexpr int64_t kDefaultContext = 8192;

struct LoadOptions {
  int threads = 0;      // for repacking; 0: every available core
  int64_t context = 0;  // longest stream, tokens; 0: the trained length, at most kDefaultContext
  // Memory budget in bytes for the model and all its engines, including everything they allocate; requests that do not
  // fit are rejected. 0: unlimited.
  int64_t memory = 0;
  // Stores the packed weights in a file and maps it at the next start, which makes loading almost instant. A file of
  // another model, instruction set or version, or a damaged one, is rewritten.
  bool packed_cache = false;
  std::string packed_cache_path;     // "": NAME.millrace-packed next to the model, or in the user's cache folder
  bool verify_packed_cache = false;  // repack everything and compare; checksums are always verified
  // Packs the weights in the background, after load() has returned: the model answers at once, from the stored weights,
  // with the same bits. Damaged weights then fail requests, not load(). Applies where the weights are in mapped files
  // and there is neither a packed cache nor a memory budget, which would have to hold both forms.
  bool pack_in_background = false;
  // A budget shared by several models, instead of `memory`; null: none. `memory_name`: this model's account in it.
  std::shared_ptr<MemoryAccounts> shared_memory;
  std::string memory_name;
  std::string chat_template;    // replaces the model's own; "": keep it
  std::string router = "topk";  // router of a mixture of experts, see `millrace techniques --family router`
  // Where weights are during a pass, NAME[:key=value,...], see `millrace techniques --family weights`. Sources other
  // than resident read the packed cache, which is then used even if packed_cache is false.
  std::string weights = "resident";
  std::function<void(double)> progress;          // fraction completed, called on the loading thread; may be null
  std::function<void(const std::string&)> warn;  // called with recoverable problems; may be null
};

struct EngineOptions {
  int threads = 0;          // per forward pass; 0: every available core
  int64_t context = 0;      // longest stream, tokens; 0: the model's LoadOptions::context
  int64_t max_streams = 8;  // running concurrently; further ones are queued
  int64_t queue = 1024;     // most queued requests; further ones are rejected
  // KV cache size in tokens over all streams; 0: the rest of the memory budget, or without a budget max_streams x
  // context, at most 64k.
  int64_t kv_tokens = 0;
  // f32, f16, bf16 or q8_0, with :values=NAME for another format of values and window=NAME for layers with a window; or
  // a codec NAME[:key=value,...].
  std::string kv_format = "f16";
  // Layers that see only the newest keys keep all of them, too. Otherwise streams give back the blocks that no later
  // token sees; answers are the same.
  bool keep_window_keys = false;
  // With a codec and a document context: tokens of documents that are kept as rows, of all requests together; 0: as
  // many as the longest stream has.
  int64_t document_tokens = 0;
  int64_t block_tokens = 16;      // tokens per KV block; rounded up to whole memory pages for kv_pool virtual
  std::string kv_pool = "paged";  // or virtual: each stream's blocks are contiguous; a block is then whole memory pages
  int64_t batch_tokens = 512;     // most tokens in one step; longer prompts run in chunks
  bool prefix_cache = true;       // retain finished streams' full blocks for prompts with the same prefix
  std::string prefix_evict = "lru";  // eviction order of the prefix cache: lru, lfu, length_aware, importance
  // Models with recurrent layers: bytes for copies of their states in the prefix cache, from which prompts continue;
  // 0: two copies for each stream, but at most 1 GiB and an eighth of the memory budget.
  int64_t state_cache_bytes = 0;
  int64_t state_stride = 64;         // copies are at multiples of this number of tokens and of block_tokens
  std::string state_evict = "last";  // which copies are taken and kept, NAME[:key=value,...]
  std::string evictor;  // token evictor of requests that name none, NAME[:key=value,...]; ANSWERS CHANGE. "": none
  // How documents in the prompts of requests that name nothing become keys and values, NAME[:key=value,...]; ANSWERS
  // CHANGE. "": as any other token. See `millrace techniques --family context`.
  std::string document_context;
  // Drafter of tokens that a step may verify in addition to a stream's next token, NAME[:key=value,...]; "": none. See
  // `millrace techniques --family drafter`. With acceptance "exact" answers stay the same, bit for bit.
  std::string drafter;
  std::string acceptance = "exact";  // which drafted tokens are kept, NAME[:key=value,...]
  // How much of a draft a step verifies: fixed, all of it; or auto, as much as is expected to make the step's tokens
  // come fastest. Plans of auto depend on measured times, answers do not.
  std::string draft_length = "fixed";
  bool drafter_if_possible = false;  // a server starts without the drafter where it is refused or has no memory
  // How a pass computes: kernels, NAME[:key=value,...] each, or attention=NAME[:...], a pattern, or exit=NAME[:...],
  // the gate of requests that name none; then ANSWERS CHANGE.
  std::vector<std::string> kernels;
  std::string policy = "fcfs";   // scheduling policy NAME[:key=value,...]; see `millrace techniques --family policy`
  int64_t resident_streams = 0;  // streams that may hold KV blocks, running or paused; 0: max_streams
  int64_t swap_tokens = 0;       // host memory for preempted streams, in tokens; 0: they are recomputed
  // Where preempted streams go, NAME[:key=value,...]; "": host memory if swap_tokens says so. See `millrace techniques
  // --family tier`.
  std::string kv_tier;
  std::string kv_ssd;                      // prefix store: file for blocks evicted from the prefix cache; "": none
  int64_t kv_ssd_size = int64_t{8} << 30;  // maximum size of that file, bytes
  // Any registered store, NAME[:key=value,...]; "": the file kv_ssd. See `millrace techniques --family store`.
  std::string kv_store;
  // Order of blocks in that file and of reading them: arrival, or importance (the attention that prompts paid to them).
  std::string kv_ssd_order = "arrival";
  // Fraction of the blocks found there to fetch, most important first; the rest is left out of the stream's attention,
  // so below 1 answers change.
  double kv_ssd_fetch = 1;
  // File with the cost of steps and loads for policies that use it (`millrace bench --calibrate`); "": learned at run
  // time.
  std::string cost_model;
  std::vector<std::string> adapters;  // LoRA adapters to load, [NAME=]PATH each
  // Part of the memory budget reserved for structured output; 0: a sixteenth, at most 64 MiB, but no less than the
  // vocabulary needs.
  int64_t constraint_memory = 0;
  std::string record_plans;  // file to log every step's plan to, one per line; "": none
};

// Splits an entry of EngineOptions::adapters into name and path. The default name is that of the file or folder without
// its extension.
std::pair<std::string, std::string> named_adapter(const std::string& given);

}  // namespace millrace
