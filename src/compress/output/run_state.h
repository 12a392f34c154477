// RunState: the finished decoder blocks of a compression, so that a run that was stopped can continue. It is a folder
// next to the output:
//
//   OUT.gguf.partial/run.json       everything that blocks depend on: the input, the passes, the text ...
//                    block-3        the tensors of block 3 as they will be stored, and their rows of the report
//
// A block's file has a head in JSON, the bytes that the head describes, and a checksum (XXH3-128). A file appears only
// when it is complete; a damaged file counts as absent. A folder is used only by a run with the same version, processor
// and options, so the layout may change between versions. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compress/compress.h"
#include "compress/matrix_parts.h"

namespace millrace {

// Result for one tensor of the plan.
struct TensorResult {
  size_t tensor = 0;           // index in the plan
  bool factored = false;       // true: only its parts are stored
  int64_t index_bytes = 0;     // bytes of a row of codebook indices; 0: rows in the tensor's format
  std::vector<uint8_t> bytes;  // empty: as `millrace convert` would write it, or factored
  std::vector<PartTensor> parts;
  std::vector<CompressedMatrix> matrices;
};

class RunState {
 public:
  // "OUT.gguf.partial".
  static std::string folder_of(const std::string& output) { return output + ".partial"; }

  // Everything that blocks depend on, as pairs of a name and a value: {"passes", "gptq"}.
  using Identity = std::vector<std::pair<std::string, std::string>>;

  // Creates the folder, or opens the folder of a run with the same identity. Errors: user (the folder is from a run
  // with another identity, and the message names the first difference; or it is not from a compression), corrupt
  // (run.json), resource (disk).
  static Result<RunState> open(std::string folder, const Identity& identity);

  // Returns a block's results; empty if the block is not finished.
  std::optional<std::vector<TensorResult>> read(int64_t block) const;
  // Errors: resource (disk).
  Result<void> write(int64_t block, const std::vector<TensorResult>& tensors) const;
  // Removes the folder; called when the output is complete.
  void remove() const;

 private:
  explicit RunState(std::string folder) : folder_(std::move(folder)) {}
  std::string file_of(int64_t block) const;

  std::string folder_;
};

}  // namespace millrace
