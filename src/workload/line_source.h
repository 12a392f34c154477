// LineSource: reads a file line by line and decompresses it if it is compressed with xz. Memory is bounded for any
// input: at most kMaxTraceLineBytes per line and 256 MB for the decoder.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace {

class LineSource {
 public:
  // Errors: user (cannot be opened).
  static Result<std::unique_ptr<LineSource>> open(const std::string& path);
  // Reads from memory. `bytes` must outlive the source.
  static std::unique_ptr<LineSource> from_bytes(std::string_view bytes, const std::string& name);
  ~LineSource();

  // Sets `line` to the next line without its end ("\n" or "\r\n"), valid until the next call. Returns false after the
  // last line. Errors: corrupt (the compressed data; the message names the file), resource (the line is too long).
  Result<bool> next(std::string_view& line);

  const std::string& name() const { return name_; }
  int64_t number() const { return number_; }  // number of the line last returned by next(); the first is 1

 private:
  struct Unpacker;
  explicit LineSource(std::string name);
  Result<bool> fill();  // appends bytes to buffer_; false at the end
  size_t read_raw(char* to, size_t size);

  std::string name_;
  std::FILE* file_ = nullptr;
  std::string_view bytes_;  // used if there is no file
  std::unique_ptr<Unpacker> unpacker_;
  bool started_ = false, raw_ended_ = false;
  std::string buffer_;
  size_t at_ = 0;  // first unconsumed byte of buffer_
  int64_t number_ = 0;
};

}  // namespace millrace
