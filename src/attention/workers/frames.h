// Frames: what an engine and an attention worker exchange. A frame is a header, integers, and rows of floats:
//
//   | FrameHeader | words x int64 | floats x f32 |
//
// Where both processes map the same memory, the floats are there instead, in the area of the frame's lane
// (lane_area.h). Integers and floats are in the byte order of the machine; the magic number refuses another one.
//
//   engine                              worker
//   hello     sizes, layout             creates its KV pool                     -> ready
//   begin     spans and block tables of a pass
//   store     keys and values of a layer
//   attend    queries of a layer                                                -> attended, with the outputs
//   flush     nothing                   ... has stored all rows before it       -> flushed
//
// A worker answers what it cannot do with `failed`, a text, and ends the connection. Every number of a frame is checked
// against the sizes of the hello before it is used. The format is private to one version of the program.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "flow/batch.h"
#include "kv/pool.h"

namespace millrace {

enum class FrameKind : uint16_t { hello = 1, ready, begin, store, attend, attended, flush, flushed, failed };

struct FrameHeader {
  static constexpr uint32_t kMagic = 0x4d525741;
  static constexpr uint16_t kVersion = 1;
  static constexpr uint64_t kMaxWords = uint64_t{1} << 26;
  static constexpr uint64_t kMaxFloats = uint64_t{1} << 31;
  static constexpr int64_t kMaxText = 4096;  // bytes of an error

  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  FrameKind kind = FrameKind::hello;
  uint64_t sequence = 0;  // number of a request; its answer has the same one
  uint32_t lane = 0;      // mini-batch
  uint32_t reserved = 0;
  uint64_t words = 0;
  uint64_t floats = 0;

  // Returns true if the numbers are in the range of any frame.
  bool valid() const {
    return magic == kMagic && version == kVersion && words <= kMaxWords && floats <= kMaxFloats && reserved == 0;
  }
};
static_assert(sizeof(FrameHeader) == 40);

// Collects a frame's integers.
class FrameWriter {
 public:
  void clear() { words_.clear(); }
  void add(int64_t word) { words_.push_back(word); }
  void add_float(float value);
  void add_text(std::string_view text);
  void add_numbers(std::span<const int32_t> numbers);
  void add_spans(std::span<const BatchSpan> spans);
  std::span<const int64_t> words() const { return words_; }

 private:
  std::vector<int64_t> words_;
};

// Reads a frame's integers in order. After a number out of its range, or behind the last one, good() is false and every
// further number is the smallest that is allowed.
class FrameReader {
 public:
  explicit FrameReader(std::span<const int64_t> words) : words_(words) {}
  bool good() const { return good_; }
  bool complete() const { return good_ && at_ == words_.size(); }
  int64_t number(int64_t min, int64_t max);
  float real();
  std::string text(int64_t max_bytes);
  // Numbers in [0, end), at most `max` of them.
  void numbers(int64_t max, int64_t end, std::vector<int32_t>& out);
  // Spans of a batch of `tokens` tokens: neighbours that cover it, with tables inside of `table` entries that cover
  // their slots, of which there are at most `context`.
  struct SpanLimits {
    int64_t tokens, table, context, block_tokens;
  };
  void spans(const SpanLimits& limits, std::vector<BatchSpan>& out);

 private:
  void fail() { good_ = false; }

  std::span<const int64_t> words_;
  size_t at_ = 0;
  bool good_ = true;
};

// Sizes of a worker: its part of the KV pool, and room for rows.
struct WorkerSetup {
  std::string isa;  // instruction set, whose kernels give the engine's bits
  KvLayout layout;  // with the worker's heads alone
  int64_t blocks = 0;
  KvPoolOptions places;
  int64_t lanes = 1;
  int64_t tokens = 0;    // tokens of one pass, at most
  int64_t context = 0;   // slots of one stream
  int64_t q_width = 0;   // floats of the widest row of queries
  int64_t kv_width = 0;  // floats of the widest row of keys
  int64_t threads = 1;
  bool shared_memory = false;

  int64_t pool_bytes() const { return kv_pool_bytes(layout, blocks, places); }
};

void write_setup(const WorkerSetup& setup, FrameWriter& to);
// Errors: corrupt (a number out of range), unsupported (a KV format that this program does not have).
Result<WorkerSetup> read_setup(FrameReader& from);

}  // namespace millrace
