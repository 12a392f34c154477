#include "run/executors/step_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <type_traits>

#include "loader/byte_reader.h"

namespace millrace {
namespace {

constexpr std::string_view kInputMark = "MRI2", kOutputMark = "MRO1";  // frozen
constexpr int64_t kMaxIndex = int64_t{1} << 48;                        // of tokens in a stream

// Calls `each` for every field of a value, in the order of the bytes.
template <typename Value, typename Each>
void visit_fields(Value& value, const Each& each) {
  using Plain = std::remove_const_t<Value>;
  if constexpr (std::is_arithmetic_v<Plain>) {
    each(value);
  } else if constexpr (std::is_same_v<Plain, StepWindow>) {
    each(value.slot), each(value.blocks);
  } else if constexpr (std::is_same_v<Plain, StateMark>) {
    each(value.row), each(value.slot);
  } else if constexpr (std::is_same_v<Plain, StepMass>) {
    each(value.chunk), each(value.blocks);
  } else if constexpr (std::is_same_v<Plain, KeySegment>) {
    each(value.begin), each(value.end), each(value.scale), each(value.bias), each(value.document);
  } else {
    static_assert(std::is_same_v<Plain, StepChunk>);
    each(value.stream), each(value.first), each(value.slot), each(value.keys);
    each(value.tokens), each(value.drafted), each(value.tree), each(value.outputs);
    each(value.blocks), each(value.windows), each(value.segments), each(value.segment_heads);
    each(value.documents.power), each(value.documents.most), each(value.marks), each(value.state);
    each(value.sees), each(value.answers), each(value.samples), each(value.observed);
  }
}

// Bytes that a value takes.
template <typename Value>
uint64_t stored_bytes() {
  uint64_t bytes = 0;
  const Value value = {};
  visit_fields(value, [&](const auto& field) { bytes += sizeof(field); });
  return bytes;
}

class StepWriter {
 public:
  explicit StepWriter(std::string_view mark) { bytes.insert(bytes.end(), mark.begin(), mark.end()); }
  template <typename Value>
  void count(const std::vector<Value>& values) {
    add(static_cast<uint64_t>(values.size()));
  }
  template <typename Value>
  void write(const std::vector<Value>& values) {
    for (const Value& value : values) visit_fields(value, [&](const auto& field) { this->add(field); });
  }

  std::vector<uint8_t> bytes;

 private:
  template <typename Field>
  void add(const Field& field) {
    if constexpr (std::is_same_v<Field, bool>) {
      bytes.push_back(field ? 1 : 0);
    } else {
      const auto* from = reinterpret_cast<const uint8_t*>(&field);
      bytes.insert(bytes.end(), from, from + sizeof(Field));
    }
  }
};

// After the first error nothing is read.
class StepReader {
 public:
  StepReader(std::span<const uint8_t> bytes, std::string_view mark) : reader_(bytes) {
    std::string_view found;
    good_ = reader_.take_text(mark.size(), found) && found == mark;
  }
  // The length of the array, for which enough bytes must be left.
  template <typename Value>
  void count(std::vector<Value>& values) {
    uint64_t size = 0;
    good_ = good_ && reader_.read(size) && size <= reader_.left() / stored_bytes<Value>();
    if (good_) values.resize(size);
  }
  template <typename Value>
  void read(std::vector<Value>& values) {
    for (Value& value : values) visit_fields(value, [&](auto& field) { this->take(field); });
  }
  bool complete() const { return good_ && reader_.left() == 0; }

 private:
  template <typename Field>
  void take(Field& field) {
    if constexpr (std::is_same_v<Field, bool>) {
      uint8_t byte = 0;
      good_ = good_ && reader_.read(byte) && byte <= 1;
      field = byte == 1;
    } else {
      good_ = good_ && reader_.read(field);
    }
  }

  ByteReader reader_;
  bool good_ = false;
};

template <typename Input, typename Visit>
void visit_arrays(Input& input, const Visit& visit) {
  visit(input.chunks), visit(input.tokens), visit(input.positions), visit(input.blocks);
  visit(input.windows), visit(input.segments), visit(input.parents), visit(input.marks);
}

bool within(int64_t value, int64_t least, int64_t most) { return value >= least && value <= most; }

// Slots of `tokens` tokens from `slot` on are in so many blocks.
bool covers(int64_t blocks, int64_t slot, int64_t tokens, int64_t block_tokens) {
  return within(slot, 0, kMaxIndex) && (slot + tokens + block_tokens - 1) / block_tokens <= blocks;
}

bool chunk_fits(const StepChunk& chunk, const StepBounds& bounds) {
  return within(chunk.first, 0, kMaxIndex) && within(chunk.keys, -kMaxIndex, kMaxIndex) &&
         within(chunk.tokens, 1, bounds.tokens) && within(chunk.drafted, 0, chunk.tokens - 1) &&
         (chunk.tree == 0 || (chunk.tree == chunk.drafted && chunk.tree <= kMaxTreeTokens && chunk.sees)) &&
         within(chunk.outputs, 0, chunk.tokens) &&
         covers(chunk.blocks, chunk.slot, chunk.tokens, bounds.block_tokens) &&
         within(chunk.windows, 0, bounds.groups - 1) && chunk.segment_heads >= 1 && chunk.segments >= 0 &&
         chunk.segments % chunk.segment_heads == 0 && (chunk.sees || chunk.segments == 0) &&
         within(chunk.documents.most, 0, kMaxChosenDocuments) && within(chunk.state, -1, bounds.states - 1) &&
         (chunk.state >= 0 || chunk.marks == 0);
}

// The chunks have the arrays' entries, no more and no fewer. Sums of entries do not overflow: each is at most the
// array's length before it is added.
class ChunkSums {
 public:
  ChunkSums(const StepInput& input, const StepBounds& bounds) : input_(input), bounds_(bounds) {}

  bool fit() {
    for (const StepChunk& chunk : input_.chunks)
      if (!chunk_fits(chunk, bounds_) || !add(chunk)) return false;
    return tokens_ == input_.tokens.size() && tokens_ == input_.positions.size() && blocks_ == input_.blocks.size() &&
           windows_ == input_.windows.size() && segments_ == input_.segments.size() &&
           parents_ == input_.parents.size() && marks_ == input_.marks.size() &&
           tokens_ <= static_cast<size_t>(bounds_.tokens) && outputs_ <= bounds_.outputs;
  }

 private:
  bool add(const StepChunk& chunk) {
    if (!take(tokens_, chunk.tokens, input_.tokens.size()) || !take(blocks_, chunk.blocks, input_.blocks.size()) ||
        !take(segments_, chunk.segments, input_.segments.size()))
      return false;
    const size_t first = parents_;
    if (!take(parents_, chunk.tree, input_.parents.size())) return false;
    for (size_t i = first; i < parents_; ++i)
      if (!within(input_.parents[i], -1, static_cast<int64_t>(i - first) - 1)) return false;
    if (!add_marks(chunk)) return false;
    for (int64_t g = 0; g < chunk.windows; ++g) {
      if (windows_ == input_.windows.size()) return false;
      const StepWindow& window = input_.windows[windows_++];
      if (!covers(window.blocks, window.slot, chunk.tokens, bounds_.block_tokens) ||
          !take(blocks_, window.blocks, input_.blocks.size()))
        return false;
    }
    outputs_ += chunk.outputs;
    return true;
  }
  bool add_marks(const StepChunk& chunk) {
    const size_t first = marks_;
    if (!take(marks_, chunk.marks, input_.marks.size())) return false;
    int64_t before = -1;
    for (const StateMark& mark : std::span(input_.marks).subspan(first, marks_ - first)) {
      if (!within(mark.row, before + 1, chunk.tokens - 1) || !within(mark.slot, 0, bounds_.states - 1) ||
          mark.slot == chunk.state)
        return false;
      before = mark.row;
    }
    return !(chunk.state >= 0 && chunk.tree > 0) || parents_have_marks(chunk, first);
  }
  // A token of a tree begins with the state behind its parent, so the token before the tree and each of its tokens but
  // the last need a mark.
  bool parents_have_marks(const StepChunk& chunk, size_t first) const {
    const auto marks = std::span(input_.marks).subspan(first, marks_ - first);
    for (int64_t row = chunk.tokens - chunk.tree - 1; row < chunk.tokens - 1; ++row)
      if (row < 0 || std::ranges::find(marks, row, &StateMark::row) == marks.end()) return false;
    return true;
  }
  static bool take(size_t& sum, int64_t count, size_t size) {
    if (count < 0 || static_cast<uint64_t>(count) > size - sum) return false;
    sum += static_cast<size_t>(count);
    return true;
  }

  const StepInput& input_;
  const StepBounds& bounds_;
  size_t tokens_ = 0, blocks_ = 0, windows_ = 0, segments_ = 0, parents_ = 0, marks_ = 0;
  int64_t outputs_ = 0;
};

bool values_fit(const StepInput& input, const StepBounds& bounds) {
  const int64_t last_token = bounds.vocab > 0 ? bounds.vocab - 1 : INT32_MAX;
  return std::ranges::all_of(input.tokens, [&](TokenId token) { return within(token, 0, last_token); }) &&
         std::ranges::all_of(input.positions, [](int64_t position) { return within(position, 0, kMaxIndex); }) &&
         std::ranges::all_of(input.blocks, [&](BlockId block) { return within(block, 0, bounds.blocks - 1); }) &&
         std::ranges::all_of(input.segments, [](const KeySegment& s) { return s.begin >= 0 && s.begin <= s.end; });
}

}  // namespace

std::vector<uint8_t> write_step(const StepInput& input) {
  StepWriter writer(kInputMark);
  visit_arrays(input, [&](const auto& values) { writer.count(values); });
  visit_arrays(input, [&](const auto& values) { writer.write(values); });
  return std::move(writer.bytes);
}

std::vector<uint8_t> write_step(const StepOutput& output) {
  StepWriter writer(kOutputMark);
  writer.count(output.masses), writer.count(output.shares), writer.count(output.failed);
  writer.write(output.masses), writer.write(output.shares), writer.write(output.failed);
  return std::move(writer.bytes);
}

Result<StepInput> read_step_input(std::span<const uint8_t> bytes, const StepBounds& bounds) {
  StepInput input;
  StepReader reader(bytes, kInputMark);
  visit_arrays(input, [&](auto& values) { reader.count(values); });
  visit_arrays(input, [&](auto& values) { reader.read(values); });
  if (!reader.complete())
    return Error::corrupt(fmt::format("step input: {} bytes do not hold one; send it again", bytes.size()));
  if (!ChunkSums(input, bounds).fit() || !values_fit(input, bounds))
    return Error::corrupt("step input: does not fit this executor; use the same model and options on both sides");
  input.references.resize(input.chunks.size());
  return input;
}

Result<StepOutput> read_step_output(std::span<const uint8_t> bytes, const StepInput& input) {
  StepOutput output;
  StepReader reader(bytes, kOutputMark);
  reader.count(output.masses), reader.count(output.shares), reader.count(output.failed);
  reader.read(output.masses), reader.read(output.shares), reader.read(output.failed);
  if (!reader.complete())
    return Error::corrupt(fmt::format("step output: {} bytes do not hold one; send it again", bytes.size()));
  const int64_t last = std::ssize(input.chunks) - 1;
  int64_t left = std::ssize(output.shares);
  for (const StepMass& mass : output.masses) {
    if (!within(mass.chunk, 0, last) || !within(mass.blocks, 0, left))
      return Error::corrupt("step output: is not of this step; send it again");
    left -= mass.blocks;
  }
  if (left != 0 || !std::ranges::all_of(output.failed, [&](int64_t chunk) { return within(chunk, 0, last); }))
    return Error::corrupt("step output: is not of this step; send it again");
  return output;
}

}  // namespace millrace
