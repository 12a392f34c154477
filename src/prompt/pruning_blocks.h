// The order in which pruned parts and fixed tokens are read. Pure functions.
#pragma once

#include <span>
#include <vector>

#include "prompt/compression_task.h"
#include "prompt/token_pruning.h"

namespace millrace {

// Returns the blocks of a prompt: each run of fixed tokens whole, and between two runs the chosen parts that were
// there, in the order of `parts`. `parts`: indices of task.parts, without repetition. `keep`: of each of them, the
// tokens that remain.
std::vector<PruningBlock> pruning_blocks(const CompressionTask& task, std::span<const size_t> parts,
                                         std::span<const int64_t> keep);

// Joins adjacent blocks between two fixed ones into one, whose tokens that remain are then shared by all.
std::vector<PruningBlock> joined_blocks(const CompressionTask& task, std::vector<PruningBlock> blocks);

}  // namespace millrace
