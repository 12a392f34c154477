// Writes the values of a step to bytes and reads them back, for executors in other processes and for recordings. All
// numbers are little-endian. The bytes begin with a mark of their kind and version, then the counts of the arrays:
//
//   input    "MRI2"  counts of 8 arrays   chunks  tokens  positions  blocks  windows  segments  parents  marks
//   output   "MRO1"  counts of 3 arrays   masses  shares  failed chunks
//
// Bytes may be from outside: values that do not fit the given bounds are refused. References to objects of a process
// (StepReferences) are not written; the reader sets them. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "run/executors/step_input.h"

namespace millrace {

// Upper bounds of a step of an executor.
struct StepBounds {
  int64_t tokens = 0;   // tokens of a step
  int64_t outputs = 0;  // outputs of a step
  int64_t vocab = 0;    // 0: unknown
  int64_t blocks = 0;   // ids of blocks are smaller, in all groups
  int64_t block_tokens = 1;
  int64_t groups = 1;  // groups of the pool
  int64_t states = 0;  // slots of the pool's states
};

std::vector<uint8_t> write_step(const StepInput& input);
std::vector<uint8_t> write_step(const StepOutput& output);

// The references of the result are null, one for each chunk. Errors: corrupt.
Result<StepInput> read_step_input(std::span<const uint8_t> bytes, const StepBounds& bounds);
// Reads the output of a step that had this input. Errors: corrupt.
Result<StepOutput> read_step_output(std::span<const uint8_t> bytes, const StepInput& input);

}  // namespace millrace
