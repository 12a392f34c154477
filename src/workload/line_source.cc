#include "workload/line_source.h"

#include <fmt/format.h>
#include <lzma.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "workload/request.h"

namespace millrace {
namespace {
constexpr size_t kChunk = 1 << 16;
constexpr uint64_t kUnpackerMemory = uint64_t{256} << 20;
constexpr std::string_view kXzMagic(
    "\xfd"
    "7zXZ\0",
    6);
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
}  // namespace

struct LineSource::Unpacker {
  lzma_stream stream = LZMA_STREAM_INIT;
  std::string packed = std::string(kChunk, '\0');
  bool ended = false;
  ~Unpacker() { lzma_end(&stream); }
};

LineSource::LineSource(std::string name) : name_(std::move(name)) {}

LineSource::~LineSource() {
  if (file_) std::fclose(file_);
}

Result<std::unique_ptr<LineSource>> LineSource::open(const std::string& path) {
  auto source = std::unique_ptr<LineSource>(new LineSource(path));
  source->file_ = std::fopen(path.c_str(), "rb");
  if (!source->file_) return Error::corrupt(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  return source;
}

std::unique_ptr<LineSource> LineSource::from_bytes(std::string_view bytes, const std::string& name) {
  auto source = std::unique_ptr<LineSource>(new LineSource(name));
  source->bytes_ = bytes;
  return source;
}

size_t LineSource::read_raw(char* to, size_t size) {
  if (file_) return std::fread(to, 1, size, file_);
  const size_t n = std::min(size, bytes_.size());
  std::copy_n(bytes_.data(), n, to);
  bytes_.remove_prefix(n);
  return n;
}

Result<bool> LineSource::fill() {
  buffer_.erase(0, at_);
  at_ = 0;
  const size_t old = buffer_.size();
  if (!unpacker_) {
    if (raw_ended_) return false;
    buffer_.resize(old + kChunk);
    const size_t n = read_raw(buffer_.data() + old, kChunk);
    buffer_.resize(old + n);
    raw_ended_ = n == 0;
    if (file_ && std::ferror(file_))
      return Error::corrupt(fmt::format("{}: cannot be read: {}", name_, std::strerror(errno)));
    const bool first = !started_;
    started_ = true;
    if (!first || !std::string_view(buffer_).starts_with(kXzMagic)) {
      if (first && std::string_view(buffer_).starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
      return n > 0;
    }
    unpacker_ = std::make_unique<Unpacker>();
    if (lzma_stream_decoder(&unpacker_->stream, kUnpackerMemory, LZMA_CONCATENATED) != LZMA_OK)
      return Error::resource("out of memory");
    unpacker_->packed = std::move(buffer_);
    unpacker_->stream.next_in = reinterpret_cast<const uint8_t*>(unpacker_->packed.data());
    unpacker_->stream.avail_in = unpacker_->packed.size();
    buffer_.clear();
    return fill();
  }
  Unpacker& u = *unpacker_;
  if (u.ended) return false;
  buffer_.resize(old + kChunk);
  u.stream.next_out = reinterpret_cast<uint8_t*>(buffer_.data() + old);
  u.stream.avail_out = kChunk;
  while (u.stream.avail_out > 0 && !u.ended) {
    if (u.stream.avail_in == 0 && !raw_ended_) {
      u.packed.resize(kChunk);
      u.stream.avail_in = read_raw(u.packed.data(), kChunk);
      u.stream.next_in = reinterpret_cast<const uint8_t*>(u.packed.data());
      raw_ended_ = u.stream.avail_in == 0;
    }
    const lzma_ret status = lzma_code(&u.stream, raw_ended_ ? LZMA_FINISH : LZMA_RUN);
    u.ended = status == LZMA_STREAM_END;
    if (status == LZMA_MEMLIMIT_ERROR)
      return Error::resource(fmt::format("{}: unpacking needs more than {} MB", name_, kUnpackerMemory >> 20));
    if (status != LZMA_OK && !u.ended) {
      return Error::corrupt(
          fmt::format("{}: the packed data is {} after line {}", name_, raw_ended_ ? "cut off" : "damaged", number_));
    }
  }
  buffer_.resize(old + kChunk - u.stream.avail_out);
  return buffer_.size() > old;
}

Result<bool> LineSource::next(std::string_view& line) {
  size_t searched = 0;  // offset in the unused bytes
  for (;;) {
    const size_t end = buffer_.find('\n', at_ + searched);
    const bool found = end != std::string::npos;
    bool last = false;
    if (!found) {
      searched = buffer_.size() - at_;
      if (searched > static_cast<size_t>(kMaxTraceLineBytes)) {
        return Error::resource(
            fmt::format("{}:{}: the line is longer than {} MB", name_, number_ + 1, kMaxTraceLineBytes >> 20));
      }
      MILLRACE_TRY(const bool more, fill());
      if (more) continue;
      if (at_ == buffer_.size()) return false;
      last = true;
    }
    const size_t stop = last ? buffer_.size() : end;
    line = std::string_view(buffer_).substr(at_, stop - at_);
    if (line.ends_with('\r')) line.remove_suffix(1);
    at_ = last ? stop : stop + 1;
    ++number_;
    return true;
  }
}

}  // namespace millrace
