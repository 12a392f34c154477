// LineSource: the lines of a file, decompressed on the fly if it is packed with xz. Memory is bounded for any input: at
// most kMaxTraceLineBytes per line and 256 MB for the decoder.
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
  // From memory; `bytes` must outlive the source.
  static std::unique_ptr<LineSource> from_bytes(std::string_view bytes, const std::string& name);
  ~LineSource();

  // The next line without its end ("\n" or "\r\n"), valid until the next call; false after the last one. Errors:
  // corrupt (the packed data, naming the file), resource (a line too long).
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
