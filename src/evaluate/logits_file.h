// Files with the log-probabilities of a reference model, for comparisons with other models or settings. Little-endian;
// the format never changes:
//
//   0  "MRLOGITS"                    8 bytes
//   8  version = 1                   u32
//  12  element type: 0 F32, 1 F16    u32
//  16  vocabulary                    u64
//  24  rows                          u64
//  32  row 0: target token, i32, then log p(id) for every id of the vocabulary, as elements
//      row 1 ...                     the file ends with the last row
//
// -inf is stored as the lowest finite number. Rows are written and read in order. Not thread-safe.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "millrace/token.h"

namespace millrace {

enum class LogitsElement : uint32_t { f32 = 0, f16 = 1 };

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

class LogitsWriter {
 public:
  // The file is named "path.part" until finish(). Errors: user (the file cannot be created).
  static Result<LogitsWriter> create(const std::string& path, LogitsElement element, int64_t vocab, int64_t rows);
  LogitsWriter(LogitsWriter&&) = default;
  ~LogitsWriter();  // removes an unfinished file
  // Appends a row. `log_probs`: [vocab]. Errors: resource (disk full).
  Result<void> add(TokenId target, const float* log_probs);
  Result<void> finish();  // errors: resource, internal (rows are missing)

 private:
  LogitsWriter() = default;
  std::string path_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  LogitsElement element_ = LogitsElement::f32;
  int64_t vocab_ = 0, rows_ = 0, written_ = 0;
  std::vector<unsigned char> row_;
};

class LogitsReader {
 public:
  // Checks the header against the file's size. Errors: corrupt, unsupported (a later version).
  static Result<LogitsReader> open(const std::string& path);
  int64_t vocab() const { return vocab_; }
  int64_t rows() const { return rows_; }
  // Reads the next row. `log_probs`: out, [vocab]. Errors: corrupt.
  Result<void> next(TokenId* target, float* log_probs);

 private:
  LogitsReader() = default;
  std::string path_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  LogitsElement element_ = LogitsElement::f32;
  int64_t vocab_ = 0, rows_ = 0, read_ = 0;
  std::vector<unsigned char> row_;
};

}  // namespace millrace
