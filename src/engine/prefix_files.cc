#include "engine/prefix_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "kv/block_run_file.h"
#include "run/adapter_registry.h"
#include "run/compatibility/rules.h"
#include "run/prompt_embeddings.h"

namespace millrace {
namespace {

// What keys and values of the request depend on, beside its tokens; and where it shares them.
struct Scope {
  std::string identity;
  uint64_t number = 0;
};

Result<Scope> scope_of(LoopContext& loop, PrefixCache& cache, const Request& request) {
  if (!cache.index()) return Error::user("KV file: the prefix cache is off; switch it on");
  Facts facts = loop.facts;
  facts.add(facts::kPrefixFile, "a KV file");
  MILLRACE_TRY_VOID(resolve(facts));
  Scope scope;
  LoraMix adapters;
  if (!request.adapters.empty()) {
    if (!loop.executor->adapters()) return Error::unsupported("KV file: this executor has no adapters");
    MILLRACE_TRY(adapters, loop.executor->adapters()->find(request.adapters));
  }
  scope.identity = fmt::format("adapters {}\nrows {}\n", adapter_identity(adapters), embeddings_identity(request));
  scope.number = cache.scope_of(request, adapters);
  return scope;
}

// Blocks that are saved must be held before: the model's identity takes a block.
Result<void> add_model_identity(LoopContext& loop, PrefixCache& cache, std::string& identity) {
  if (loop.kv().free_blocks() == 0) cache.index()->evict(1);
  MILLRACE_TRY(const std::string model, loop.executor->home().kv_identity());
  identity = model + identity;
  return {};
}

// References to blocks, for one call.
struct BlockHold {
  BlockHold(KvPool& from, std::vector<BlockId> taken) : pool(from), blocks(std::move(taken)) {}
  ~BlockHold() {
    for (const BlockId block : blocks) pool.release(block);
  }
  BlockHold(const BlockHold&) = delete;

  KvPool& pool;
  std::vector<BlockId> blocks;
};

}  // namespace

Result<int64_t> save_prefix(LoopContext& loop, PrefixCache& cache, const Request& request, const std::string& path) {
  MILLRACE_TRY(Scope scope, scope_of(loop, cache, request));
  KvPool& pool = loop.kv();
  PrefixMatch match = cache.index()->match_groups(request.prompt, scope.number);
  const BlockHold held(pool, std::move(match.blocks));
  std::vector<float> state;
  if (match.state >= 0) {
    const std::span<const float> values = slot_values(pool.states(), match.state);
    state.assign(values.begin(), values.end());
  }
  if (held.blocks.empty())
    return Error::user(fmt::format("KV file: none of the prompt's blocks of {} tokens are in the prefix cache",
                                   pool.layout().block_tokens));
  MILLRACE_TRY_VOID(add_model_identity(loop, cache, scope.identity));
  const auto tokens = std::ssize(held.blocks) * pool.layout().block_tokens;
  const BlockRun run{scope.identity,
                     {request.prompt.begin(), request.prompt.begin() + tokens},
                     0,
                     std::ssize(pool.layout().layers),
                     std::move(state)};
  MILLRACE_TRY_VOID(export_blocks(pool, held.blocks, run, path));
  return tokens;
}

Result<int64_t> load_prefix(LoopContext& loop, PrefixCache& cache, const Request& request, const std::string& path) {
  MILLRACE_TRY(Scope scope, scope_of(loop, cache, request));
  MILLRACE_TRY_VOID(add_model_identity(loop, cache, scope.identity));
  KvPool& pool = loop.kv();
  MILLRACE_TRY(BlockRunFile file, BlockRunFile::open(path, pool, scope.identity));
  if (file.run().layer_begin != 0 || file.run().layer_end != std::ssize(pool.layout().layers))
    return Error::user(fmt::format("{}: has layers {} to {} only; a prefix needs all", path, file.run().layer_begin,
                                   file.run().layer_end));
  BlockHold held(pool, {});
  while (std::ssize(held.blocks) < file.blocks()) {
    if (pool.free_blocks() == 0) cache.index()->evict(1);
    auto block = pool.allocate();
    if (!block.ok()) break;
    held.blocks.push_back(*block);
  }
  if (held.blocks.empty()) return Error::resource(fmt::format("{}: the KV cache has no free block", path));
  if (cache.copies_states() && std::ssize(held.blocks) < file.blocks())
    return Error::resource(
        fmt::format("{}: the KV cache has room for {} of {} blocks, and the recurrent layers' state is "
                    "that behind the last one",
                    path, held.blocks.size(), file.blocks()));
  MILLRACE_TRY_VOID(file.read(pool, held.blocks));
  const int64_t tokens = std::ssize(held.blocks) * pool.layout().block_tokens;
  const auto loaded = std::span(file.run().tokens).first(static_cast<size_t>(tokens));
  cache.index()->insert(loaded, held.blocks, scope.number, request.keep_seconds);
  if (cache.copies_states() && !cache.index()->store_state(loaded, scope.number, file.run().state))
    return Error::resource(fmt::format("{}: the prefix cache has no slot for the recurrent layers' state", path));
  return tokens;
}

}  // namespace millrace
