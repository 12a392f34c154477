// RunState: the finished decoder blocks of a compression, so that a run that was stopped can continue. It is a folder
// next to the output:
//
//   OUT.gguf.partial/run.json       the blocks' dependencies: the input, the passes, the text ...
//                    block-3        the tensors of block 3 as they will be stored, and their rows of the report
//
// A block's file is a head in JSON and the bytes that it names, with a checksum (XXH3-128) behind them. It appears only
// when it is complete; a damaged one counts as absent. A folder is used only by the same version, processor and
// options, so the layout may change. Not thread-safe.
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
  size_t tensor = 0;           // place in the plan
  bool factored = false;       // only its parts are stored
  int64_t index_bytes = 0;     // bytes of a row of codebook indices; 0: rows in the tensor's format
  std::vector<uint8_t> bytes;  // empty: as `millrace convert` would write it, or factored
  std::vector<PartTensor> parts;
  std::vector<CompressedMatrix> matrices;
};

class RunState {
 public:
  // "OUT.gguf.partial".
  static std::string folder_of(const std::string& output) { return output + ".partial"; }

  // Each thing that blocks depend on, with its value: {"passes", "gptq"}.
  using Identity = std::vector<std::pair<std::string, std::string>>;

  // Makes the folder, or takes one of a run of the same identity. Errors: user (of another run: the first thing that
  // differs; a folder of something else), corrupt (run.json), resource (disk).
  static Result<RunState> open(std::string folder, const Identity& identity);

  // Empty: not finished.
  std::optional<std::vector<TensorResult>> read(int64_t block) const;
  // Errors: resource (disk).
  Result<void> write(int64_t block, const std::vector<TensorResult>& tensors) const;
  // The folder, once the output is there.
  void remove() const;

 private:
  explicit RunState(std::string folder) : folder_(std::move(folder)) {}
  std::string file_of(int64_t block) const;

  std::string folder_;
};

}  // namespace millrace
