// Importance matrices: for each matrix and each of its inputs, the sum of squares of the input over a calibration text.
// Reads and writes llama.cpp's two kinds of files, both little-endian:
//
//   .dat (older): i32 number of entries; each entry: i32 length, name, i32 calls, i32 number of values, f32 [values];
//   then, optional: i32 chunks, i32 length, name of the text. A value is the mean square of an input times the calls.
//
//   GGUF with general.type = "imatrix": tensors NAME.in_sum2 [experts, cols] and NAME.counts [experts, 1] in F32; keys
//   imatrix.datasets, imatrix.chunk_count and imatrix.chunk_size. A value is the sum of squares over `count` inputs.
//
// In both kinds, sum / count is the mean square. Parsing allocates in proportion to the file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace millrace {

struct ImportanceEntry {
  std::vector<float> sums;    // [experts, cols]
  std::vector<float> counts;  // [experts], or one count for all experts
};

struct ImportanceFile {
  std::map<std::string, ImportanceEntry> entries;  // by the tensor's name, "blk.3.attn_q.weight"
  std::vector<std::string> datasets;
  int64_t chunks = 0, chunk_size = 0;  // 0: unknown

  // Returns the mean squares [experts, cols] of a matrix's inputs, with ones for an expert that was never chosen.
  // Empty: the file does not contain the matrix. Errors: user (the sizes differ).
  Result<std::vector<float>> weights(const std::string& tensor, int64_t experts, int64_t cols) const;

  std::string path;  // for messages
};

// Errors: user (no such file), corrupt (the message has the offset or tensor), unsupported (another kind of GGUF file).
Result<ImportanceFile> read_importance_file(const std::string& path);

// Writes the older kind if `path` ends in .dat, else GGUF. Errors: those of GgufWriter::write().
Result<void> write_importance_file(const ImportanceFile& file, const std::string& path);

}  // namespace millrace
