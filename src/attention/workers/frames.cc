#include "attention/workers/frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace millrace {
namespace {

constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxHeads = 1 << 16;
constexpr int64_t kMaxDim = 1 << 20;
constexpr int64_t kMaxSlots = int64_t{1} << 31;
constexpr int64_t kMaxGroups = 64;
constexpr int64_t kMaxName = 64;
constexpr int64_t kMaxThreads = 1024;
constexpr int64_t kMaxLanes = 2;

void write_layout(const KvLayout& layout, FrameWriter& to) {
  to.add_text(layout.format->name);
  to.add_text(layout.values()->name);
  to.add(layout.block_tokens);
  to.add(layout.window);
  to.add(layout.most_held);
  to.add(std::ssize(layout.layers));
  for (const KvLayer& layer : layout.layers)
    for (const int64_t number : {layer.kv_heads, layer.head_dim, layer.window, layer.heads_each}) to.add(number);
}

Result<const Format*> read_format(FrameReader& from) {
  const std::string name = from.text(kMaxName);
  if (const Format* format = find_format(name)) return format;
  return Error::unsupported(fmt::format("attention worker: no KV format '{}'", name));
}

Result<KvLayout> read_layout(FrameReader& from) {
  KvLayout layout;
  MILLRACE_TRY(layout.format, read_format(from));
  MILLRACE_TRY(layout.value_format, read_format(from));
  layout.block_tokens = from.number(1, kMaxBlockTokens);
  layout.window = from.number(0, kMaxSlots);
  layout.most_held = from.number(0, kMaxSlots);
  layout.layers.resize(static_cast<size_t>(from.number(0, kMaxLayers)));
  for (KvLayer& layer : layout.layers) {
    layer.kv_heads = from.number(0, kMaxHeads);
    layer.head_dim = from.number(0, kMaxDim);
    layer.window = from.number(0, kMaxSlots);
    layer.heads_each = from.number(1, kMaxHeads);
  }
  return layout;
}

}  // namespace

void FrameWriter::add_float(float value) { add(std::bit_cast<int32_t>(value)); }

void FrameWriter::add_text(std::string_view text) {
  add(std::ssize(text));
  const size_t first = words_.size();
  words_.resize(first + (text.size() + 7) / 8, 0);
  std::memcpy(words_.data() + first, text.data(), text.size());
}

void FrameWriter::add_numbers(std::span<const int32_t> numbers) {
  add(std::ssize(numbers));
  words_.insert(words_.end(), numbers.begin(), numbers.end());
}

void FrameWriter::add_spans(std::span<const BatchSpan> spans) {
  add(std::ssize(spans));
  for (const BatchSpan& span : spans)
    for (const int64_t number : {span.count, span.first_slot, span.table, span.table_size}) add(number);
}

int64_t FrameReader::number(int64_t min, int64_t max) {
  if (!good_ || at_ == words_.size() || words_[at_] < min || words_[at_] > max) {
    fail();
    return min;
  }
  return words_[at_++];
}

float FrameReader::real() { return std::bit_cast<float>(static_cast<int32_t>(number(INT32_MIN, INT32_MAX))); }

std::string FrameReader::text(int64_t max_bytes) {
  const auto bytes = static_cast<size_t>(number(0, max_bytes));
  const size_t words = (bytes + 7) / 8;
  if (!good_ || words > words_.size() - at_) {
    fail();
    return {};
  }
  std::string out(bytes, '\0');
  std::memcpy(out.data(), words_.data() + at_, bytes);
  at_ += words;
  return out;
}

void FrameReader::numbers(int64_t max, int64_t end, std::vector<int32_t>& out) {
  const auto count = static_cast<size_t>(number(0, max));
  if (count > words_.size() - at_) fail();
  out.clear();
  for (size_t i = 0; good_ && i < count; ++i) out.push_back(static_cast<int32_t>(number(0, end - 1)));
}

void FrameReader::spans(const SpanLimits& limits, std::vector<BatchSpan>& out) {
  const int64_t count = number(0, limits.tokens);
  out.clear();
  int64_t begin = 0;
  for (int64_t i = 0; good_ && i < count; ++i) {
    BatchSpan span{.begin = begin, .chunk = static_cast<int32_t>(i)};
    span.count = number(1, limits.tokens - begin);
    span.first_slot = number(0, limits.context - span.count);
    span.table = number(0, limits.table);
    span.table_size = number(0, limits.table - span.table);
    if (span.table_size * limits.block_tokens < span.first_slot + span.count) fail();
    begin += span.count;
    out.push_back(span);
  }
  if (begin != limits.tokens) fail();
}

void write_setup(const WorkerSetup& setup, FrameWriter& to) {
  to.add_text(setup.isa);
  write_layout(setup.layout, to);
  to.add(std::ssize(setup.layout.windows));
  for (const KvLayout& group : setup.layout.windows) write_layout(group, to);
  to.add(setup.blocks);
  for (const int64_t number :
       {setup.places.longest, setup.places.streams, setup.places.swapped, setup.places.swapped_blocks, setup.lanes,
        setup.tokens, setup.context, setup.q_width, setup.kv_width, setup.threads, int64_t{setup.shared_memory}})
    to.add(number);
}

Result<WorkerSetup> read_setup(FrameReader& from) {
  WorkerSetup setup;
  setup.isa = from.text(kMaxName);
  MILLRACE_TRY(setup.layout, read_layout(from));
  const int64_t groups = from.number(0, kMaxGroups);
  for (int64_t i = 0; from.good() && i < groups; ++i) {
    MILLRACE_TRY(KvLayout group, read_layout(from));
    setup.layout.windows.push_back(std::move(group));
  }
  setup.blocks = from.number(1, INT32_MAX);
  setup.places.longest = from.number(0, kMaxSlots);
  setup.places.streams = from.number(0, kMaxSlots);
  setup.places.swapped = from.number(0, kMaxSlots);
  setup.places.swapped_blocks = from.number(0, INT64_MAX);
  setup.lanes = from.number(1, kMaxLanes);
  setup.tokens = from.number(1, INT32_MAX);
  setup.context = from.number(1, kMaxSlots);
  setup.q_width = from.number(1, kMaxDim * 64);
  setup.kv_width = from.number(1, kMaxDim * 64);
  setup.threads = from.number(1, kMaxThreads);
  setup.shared_memory = from.number(0, 1) != 0;
  if (!from.complete()) return Error::corrupt("attention worker: a hello with a number out of range");
  return setup;
}

}  // namespace millrace
