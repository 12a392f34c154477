// Early exit: takes the rows out of a pass that its exit gates stop, and brings their hidden states back for the head.
// Every row keeps the bits that it has in any other batch.
#pragma once

#include "models/forward_context.h"

namespace millrace {

// The first number of layers greater than `depth` and smaller than `layers` behind which a gate of the batch may stop
// rows; ExitGate::kNever: there is none.
int64_t find_exit(const Batch& batch, int64_t depth, int64_t layers);
// Called behind `depth` layers, with nothing pending: asks the gates. Rows that stop leave; the output rows among them
// are kept behind the others. Returns the batch of the rows that stay, which is `batch` itself if no row stops.
const Batch& exit_rows(const ArchSpec& spec, const Batch& batch, int64_t depth, ForwardContext& context);
// Fills `to` with the tokens of `from` that do not leave, without its output rows, and `kept` with their indices.
// `leaves`: by token of `from`, 1: it leaves.
void keep_staying(const Batch& from, const std::vector<uint8_t>& leaves, Batch& to, std::vector<int32_t>& kept);
// Copies the kept rows from the residual to context.normed, which is about to take its place.
void copy_exited_rows(const ArchSpec& spec, ForwardContext& context);
// Behind the last layer, with nothing pending: `batch` has the output rows that stayed. Returns the batch of all output
// rows in their order, whose residual is complete.
const Batch& rejoin_exited(const ArchSpec& spec, const Batch& batch, ForwardContext& context);

}  // namespace millrace
