// LineSource: the lines of a file, unpacked on the way when the file is packed with xz. Bounded memory whatever the
// file says: one line at most kMaxTraceLineBytes, the unpacker at most 256 MB.
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
  int64_t number() const { return number_; }  // of the line that next() gave last; the first is 1

 private:
  struct Unpacker;
  explicit LineSource(std::string name);
  Result<bool> fill();  // more bytes behind buffer_; false at the end
  size_t read_raw(char* to, size_t size);

  std::string name_;
  std::FILE* file_ = nullptr;
  std::string_view bytes_;  // where there is no file
  std::unique_ptr<Unpacker> unpacker_;
  bool started_ = false, raw_ended_ = false;
  std::string buffer_;
  size_t at_ = 0;  // first byte of buffer_ that no line has used
  int64_t number_ = 0;
};

}  // namespace millrace
