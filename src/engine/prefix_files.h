// Saves the prefix blocks of a prompt to a file, and loads them into the prefix cache of another engine, which then
// computes only the tokens behind them. Called between steps, on the engine's thread.
#pragma once

#include <cstdint>
#include <string>

#include "engine/loop_context.h"
#include "engine/prefix_cache.h"

namespace millrace {

// Saves the leading full blocks of request.prompt that the prefix cache has. Returns their tokens. Errors: user (none
// is cached; no prefix cache), unsupported (recurrent layers), resource (the disk).
Result<int64_t> save_prefix(LoopContext& loop, PrefixCache& cache, const Request& request, const std::string& path);

// Loads the file's blocks into the prefix cache, in the scope of `request`, whose prompt does not matter: as many of
// the first ones as there is room for. Returns their tokens. Errors: corrupt, user (of another model, machine, KV
// format, adapters), unsupported, resource (no room for a block).
Result<int64_t> load_prefix(LoopContext& loop, PrefixCache& cache, const Request& request, const std::string& path);

}  // namespace millrace
