#include "evaluate/logits_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/enum_table.h"
#include "base/publish.h"
#include "tensor/half.h"

namespace millrace {
namespace {

static_assert(std::endian::native == std::endian::little, "rows are copied from memory unchanged");

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t element;
  uint64_t vocab;
  uint64_t rows;
};
static_assert(sizeof(Header) == 32);

constexpr char kMagic[8] = {'M', 'R', 'L', 'O', 'G', 'I', 'T', 'S'};
constexpr uint32_t kVersion = 1;
constexpr uint64_t kMaxVocab = uint64_t{1} << 28;
constexpr float kLowestF16 = -65504.0f;

int64_t row_bytes(LogitsElement element, int64_t vocab) { return 4 + vocab * (element == LogitsElement::f16 ? 2 : 4); }

std::string part_name(const std::string& path) { return path + ".part"; }

}  // namespace

Result<LogitsWriter> LogitsWriter::create(const std::string& path, LogitsElement element, int64_t vocab, int64_t rows) {
  LogitsWriter writer;
  writer.file_.reset(std::fopen(part_name(path).c_str(), "wb"));
  if (!writer.file_)
    return Error::user(fmt::format("{}: cannot be created: {}", part_name(path), std::strerror(errno)));
  writer.path_ = path;
  writer.element_ = element;
  writer.vocab_ = vocab;
  writer.rows_ = rows;
  writer.row_.resize(static_cast<size_t>(row_bytes(element, vocab)));
  Header header{
      {}, kVersion, static_cast<uint32_t>(element), static_cast<uint64_t>(vocab), static_cast<uint64_t>(rows)};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  if (std::fwrite(&header, sizeof(header), 1, writer.file_.get()) != 1)
    return Error::resource(fmt::format("{}: cannot be written: {}", part_name(path), std::strerror(errno)));
  return writer;
}

LogitsWriter::~LogitsWriter() {
  if (!file_) return;
  file_.reset();
  std::error_code ignored;
  std::filesystem::remove(part_name(path_), ignored);
}

Result<void> LogitsWriter::add(TokenId target, const float* log_probs) {
  std::memcpy(row_.data(), &target, 4);
  for (int64_t i = 0; i < vocab_; ++i) {
    // NaN fails both comparisons of the clamp, and is treated as probability 0.
    const float x = log_probs[i] > kLowestF16 ? log_probs[i] : kLowestF16;
    if (element_ == LogitsElement::f16) {
      const uint16_t half = f32_to_f16(x);
      std::memcpy(row_.data() + 4 + i * 2, &half, 2);
    } else {
      std::memcpy(row_.data() + 4 + i * 4, &x, 4);
    }
  }
  if (std::fwrite(row_.data(), row_.size(), 1, file_.get()) != 1)
    return Error::resource(fmt::format("{}: cannot be written: {}", part_name(path_), std::strerror(errno)));
  ++written_;
  return {};
}

Result<void> LogitsWriter::finish() {
  if (written_ != rows_) return Error::internal(fmt::format("{}: {} of {} rows were written", path_, written_, rows_));
  const bool flushed = std::fclose(file_.release()) == 0;
  std::error_code error;
  if (flushed) error = publish(part_name(path_), path_);
  if (!flushed || error) {
    const std::string reason = error ? error.message() : std::strerror(errno);
    std::filesystem::remove(part_name(path_), error);
    return Error::resource(fmt::format("{}: cannot be written: {}", path_, reason));
  }
  return {};
}

Result<LogitsReader> LogitsReader::open(const std::string& path) {
  LogitsReader reader;
  reader.path_ = path;
  reader.file_.reset(std::fopen(path.c_str(), "rb"));
  if (!reader.file_) return Error::corrupt(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  Header header;
  if (std::fread(&header, sizeof(header), 1, reader.file_.get()) != 1 ||
      std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0)
    return Error::corrupt(
        fmt::format("{}: is not a file of saved log-probabilities; create one with perplexity --save-logits", path));
  if (header.version != kVersion)
    return Error::unsupported(fmt::format("{}: version {}; this build reads {}", path, header.version, kVersion));
  const auto element = find_enumerator<LogitsElement>(header.element);
  if (!element)
    return Error::unsupported(
        fmt::format("{}: element type {}; this build reads 0 (F32) and 1 (F16)", path, header.element));
  if (header.vocab == 0 || header.vocab > kMaxVocab)
    return Error::corrupt(fmt::format("{}: vocabulary of {} is outside 1 to {}", path, header.vocab, kMaxVocab));
  reader.element_ = *element;
  reader.vocab_ = static_cast<int64_t>(header.vocab);
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  const auto row = static_cast<uint64_t>(row_bytes(reader.element_, reader.vocab_));
  if (error || header.rows == 0 || (size - sizeof(header)) / row != header.rows || (size - sizeof(header)) % row != 0)
    return Error::corrupt(
        fmt::format("{}: {} rows of {} bytes after a header of 32 do not add up to the file's {} bytes", path,
                    header.rows, row, error ? 0 : size));
  reader.rows_ = static_cast<int64_t>(header.rows);
  reader.row_.resize(static_cast<size_t>(row));
  return reader;
}

Result<void> LogitsReader::next(TokenId* target, float* log_probs) {
  if (read_ == rows_) return Error::corrupt(fmt::format("{}: has only {} rows", path_, rows_));
  if (std::fread(row_.data(), row_.size(), 1, file_.get()) != 1)
    return Error::corrupt(fmt::format("{}: row {} cannot be read", path_, read_));
  std::memcpy(target, row_.data(), 4);
  for (int64_t i = 0; i < vocab_; ++i) {
    if (element_ == LogitsElement::f16) {
      uint16_t half;
      std::memcpy(&half, row_.data() + 4 + i * 2, 2);
      log_probs[i] = f16_to_f32(half);
    } else {
      std::memcpy(log_probs + i, row_.data() + 4 + i * 4, 4);
    }
    if (!(log_probs[i] <= 0.01f && log_probs[i] >= -1e30f))
      return Error::corrupt(
          fmt::format("{}: row {} has {} for token {}, which is not a log-probability", path_, read_, log_probs[i], i));
  }
  ++read_;
  return {};
}

}  // namespace millrace
