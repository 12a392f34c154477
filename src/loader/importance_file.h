// Importance matrices: for each matrix, the sum of the squares of each input over a calibration text. Two published
// kinds of files, both of llama.cpp, are read and written; little-endian:
//
//   the older one: i32 entries; of each: i32 length, name, i32 calls, i32 values, f32 [values]; then, optional: i32
//   chunks, i32 length, name of the text. A value is the mean square of an input times the calls.
//
//   GGUF with general.type = "imatrix": tensors NAME.in_sum2 [experts, cols] and NAME.counts [experts, 1] in F32, keys
//   imatrix.datasets, imatrix.chunk_count and imatrix.chunk_size. A value is the sum over as many inputs as counted.
//
// Either way, sum / count is the mean square. Parsing allocates in proportion to the file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace millrace {

struct ImportanceEntry {
  std::vector<float> sums;    // [experts, cols]
  std::vector<float> counts;  // [experts], or one for all
};

struct ImportanceFile {
  std::map<std::string, ImportanceEntry> entries;  // by the tensor's name, "blk.3.attn_q.weight"
  std::vector<std::string> datasets;
  int64_t chunks = 0, chunk_size = 0;  // 0: not known

  // Mean squares of the inputs of a matrix [experts, cols]; an expert that was never chosen has ones. Empty: the file
  // does not have the matrix. Errors: user (another size).
  Result<std::vector<float>> weights(const std::string& tensor, int64_t experts, int64_t cols) const;

  std::string path;  // for messages
};

// Errors: user (no such file), corrupt (with offset or tensor), unsupported (a GGUF file of another kind).
Result<ImportanceFile> read_importance_file(const std::string& path);

// The older kind if `path` ends in .dat, else GGUF. Errors: as GgufWriter::write().
Result<void> write_importance_file(const ImportanceFile& file, const std::string& path);

}  // namespace millrace
