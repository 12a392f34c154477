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

// Maximum default context in tokens. A longer context must be set explicitly.
inline constexpr int64_t kDefaultContext = 8192;

struct LoadOptions {
  int threads = 0;      // for repacking; 0: every available core
  int64_t context = 0;  // maximum tokens of a stream; 0: the trained length, at most kDefaultContext
  // Memory budget in bytes for the model and all its engines, including everything they allocate; requests that do not
  // fit are rejected. 0: unlimited.
  int64_t memory = 0;
  // Stores the packed weights in a file and maps it at the next start, which makes loading almost instant. A file of
  // another model, instruction set or version, or a damaged one, is rewritten.
  bool packed_cache = false;
  std::string packed_cache_path;     // "": NAME.millrace-packed next to the model, or in the user's cache folder
  bool verify_packed_cache = false;  // repack everything and compare; checksums are always verified
  // Packs the weights in the background, after load() has returned. Until then the model answers from the stored
  // weights, with identical results. Damaged weights then cause errors in requests, not in load(). Applies only if the
  // weights are in mapped files and there is neither a packed cache nor a memory budget; a budget would have to hold
  // both forms of the weights.
  bool pack_in_background = false;
  // A memory budget that several models share; replaces `memory`. Null: none. `memory_name`: this model's account in
  // the shared budget.
  std::shared_ptr<MemoryAccounts> shared_memory;
  std::string memory_name;
  std::string chat_template;    // replaces the model's own template; "": use the model's own
  std::string router = "topk";  // router of a mixture of experts, see `millrace techniques --family router`
  // Where weights are held during a pass, NAME[:key=value,...]; see `millrace techniques --family weights`. All sources
  // except resident read the packed cache and use it even if packed_cache is false.
  std::string weights = "resident";
  std::function<void(double)> progress;          // fraction completed, called on the loading thread; may be null
  std::function<void(const std::string&)> warn;  // called with recoverable problems; may be null
};

struct EngineOptions {
  int threads = 0;          // per forward pass; 0: every available core
  int64_t context = 0;      // maximum tokens of a stream; 0: the model's LoadOptions::context
  int64_t max_streams = 8;  // maximum of running streams; further streams are queued
  int64_t queue = 1024;     // maximum of queued requests; further requests are rejected
  // KV cache size in tokens over all streams. 0: the unused part of the memory budget; without a budget, max_streams x
  // context, at most 64k.
  int64_t kv_tokens = 0;
  // f32, f16, bf16 or q8_0, or a codec NAME[:key=value,...]. f32 to q8_0 accept :values=NAME for a different format of
  // the values, and window=NAME for a different format in layers with a window.
  std::string kv_format = "f16";
  // true: layers with a window keep all keys and values. false: streams release the blocks that no later token can
  // attend. Answers do not depend on it.
  bool keep_window_keys = false;
  // With a codec and a document context: maximum of document tokens that are kept as unencoded rows, over all requests;
  // 0: the maximum tokens of a stream.
  int64_t document_tokens = 0;
  int64_t block_tokens = 16;      // tokens per KV block; rounded up to whole memory pages for kv_pool virtual
  std::string kv_pool = "paged";  // or virtual: each stream's blocks are contiguous; a block is then whole memory pages
  int64_t batch_tokens = 512;     // maximum of tokens in one step; longer prompts run in chunks
  bool prefix_cache = true;       // retain the full blocks of finished streams for prompts with the same prefix
  std::string prefix_evict = "lru";  // eviction order of the prefix cache: lru, lfu, length_aware, importance
  // Models with recurrent layers: bytes for copies of their states in the prefix cache, from which prompts continue;
  // 0: two copies for each stream, but at most 1 GiB and an eighth of the memory budget.
  int64_t state_cache_bytes = 0;
  int64_t state_stride = 64;         // copies are at multiples of this number of tokens and of block_tokens
  std::string state_evict = "last";  // which copies are taken and kept, NAME[:key=value,...]
  // Default of Request::evictor, NAME[:key=value,...]; ANSWERS CHANGE. "": none.
  std::string evictor;
  // Default of Request::document_context: how the keys and values of documents are computed, NAME[:key=value,...];
  // ANSWERS CHANGE. "": like those of any other token. See `millrace techniques --family context`.
  std::string document_context;
  // Drafter, which proposes tokens that a step may verify in addition to a stream's next token, NAME[:key=value,...];
  // "": none. See `millrace techniques --family drafter`. With acceptance "exact", answers stay the same, bit for bit.
  std::string drafter;
  std::string acceptance = "exact";  // rule that decides which drafted tokens are kept, NAME[:key=value,...]
  // How many tokens of a draft a step verifies. "fixed": all. "auto": the number that is expected to give the most
  // tokens per second. With auto, plans depend on measured times; answers do not.
  std::string draft_length = "fixed";
  bool drafter_if_possible = false;  // start without the drafter if it is refused or does not fit in memory
  // How a pass computes. Each entry is a kernel NAME[:key=value,...], an attention pattern attention=NAME[:...], or
  // exit=NAME[:...], the default of Request::exit. With a pattern or an exit gate, ANSWERS CHANGE.
  std::vector<std::string> kernels;
  std::string policy = "fcfs";   // scheduling policy NAME[:key=value,...]; see `millrace techniques --family policy`
  int64_t resident_streams = 0;  // streams that may hold KV blocks, running or paused; 0: max_streams
  // Tier to which preempted streams are swapped out, NAME[:key=value,...], such as memory:tokens=8192, or that holds
  // the keys of running streams that do not fit in memory, such as disk:path=FOLDER; "": none, preempted streams are
  // recomputed. See `millrace techniques --family tier`.
  std::string kv_tier;
  // Prefix store for blocks evicted from the prefix cache, NAME[:key=value,...], such as ssd:path=FILE,size=8G; "":
  // none. See `millrace techniques --family store`.
  std::string kv_store;
  // Cost of steps and loads, for policies that need it: a file that `millrace bench --calibrate` wrote; "": learned at
  // run time.
  std::string cost_model;
  std::vector<std::string> adapters;  // LoRA adapters to load, [NAME=]PATH each
  // Bytes of the memory budget reserved for structured output. 0: a sixteenth of the budget, at most 64 MiB, but at
  // least the bytes that the vocabulary needs.
  int64_t constraint_memory = 0;
  std::string record_plans;  // file to log every step's plan to, one per line; "": none
};

// Splits an entry of EngineOptions::adapters into name and path. The default name is the name of the file or folder,
// without the extension.
std::pair<std::string, std::string> named_adapter(const std::string& given);

}  // namespace millrace
