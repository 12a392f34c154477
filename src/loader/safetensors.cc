#include "loader/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "base/ordered_json.h"
#include "loader/byte_reader.h"
#include "loader/file_text.h"
#include "loader/tensor_ranges.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kMaxSafetensors = size_t{1} << 20;
constexpr size_t kMaxMetadataDepth = 16;
constexpr size_t kMaxTensorNameBytes = 1024;
constexpr size_t kMaxRank = 16;

struct Dtype {
  std::string_view name;
  int bits;
};

constexpr Dtype kDtypes[] = {
    {"BOOL", 8},        {"U8", 8},          {"I8", 8},      {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8},
    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"U16", 16},    {"I16", 16},    {"F16", 16},    {"BF16", 16},
    {"U32", 32},        {"I32", 32},        {"F32", 32},    {"U64", 64},    {"I64", 64},    {"F64", 64},
    {"C64", 64},        {"F4", 4},          {"F6_E2M3", 6}, {"F6_E3M2", 6},
};

const Dtype* find_dtype(std::string_view name) {
  auto found = std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const Dtype& d) { return d.name == name; });
  return found == std::end(kDtypes) ? nullptr : found;
}

// One entry of the header.
struct Entry {
  std::string name;
  const Dtype* dtype = nullptr;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> offsets;
};

// Strict parser of the header; any deviation ends the parse with `problem()`. Depth 1 is the header, 2 a tensor, 3 one
// of its lists; below "__metadata__" anything is allowed.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  std::vector<Entry>& entries() { return entries_; }
  std::string problem() const {
    if (entries_.empty()) return problem_;
    return fmt::format("tensor {}: {}", quoted_name(entries_.back().name), problem_);
  }

  bool null() override { return metadata_ || fail("unexpected null"); }
  bool boolean(bool) override { return metadata_ || fail("unexpected boolean"); }
  bool binary(Json::binary_t&) override { return fail("unexpected binary data"); }
  bool number_integer(int64_t value) override { return metadata_ || fail(fmt::format("number {} is negative", value)); }
  bool number_float(double, const std::string& text) override {
    return metadata_ || fail(fmt::format("number {} is not a whole number of 64 bits", quoted_name(text)));
  }

  bool number_unsigned(uint64_t value) override {
    if (metadata_) return true;
    if (depth_ != 3) return fail(fmt::format("unexpected number {}", value));
    std::vector<uint64_t>& list = field_ == "shape" ? entries_.back().shape : entries_.back().offsets;
    if (list.size() >= kMaxRank) return fail(fmt::format("{} has more than {} numbers", field_, kMaxRank));
    list.push_back(value);
    return true;
  }

  bool string(std::string& value) override {
    if (metadata_) return true;
    if (depth_ != 2 || field_ != "dtype") return fail(fmt::format("unexpected text {}", quoted_name(value)));
    entries_.back().dtype = find_dtype(value);
    return entries_.back().dtype || fail(fmt::format("unknown dtype {}", quoted_name(value)));
  }

  bool start_object(size_t) override {
    if (metadata_) return deeper();
    if (depth_ > 1) return fail("unexpected object");
    fields_.clear();
    ++depth_;
    return true;
  }

  bool end_object() override {
    if (!metadata_ && depth_ == 2 && fields_.size() != 3) return fail("dtype, shape or data_offsets is missing");
    --depth_;
    return true;
  }

  bool start_array(size_t) override {
    if (metadata_) return deeper();
    if (depth_ != 2 || field_ == "dtype") return fail("unexpected list");
    ++depth_;
    return true;
  }

  bool end_array() override {
    --depth_;
    return true;
  }

  bool key(std::string& name) override {
    if (depth_ == 1) return top_key(name);
    if (metadata_) return true;
    if (name != "dtype" && name != "shape" && name != "data_offsets") {
      return fail(fmt::format("unknown key {}", quoted_name(name)));
    }
    field_ = name;
    return fields_.insert(name).second || fail(fmt::format("key {} appears twice", quoted_name(name)));
  }

  bool parse_error(size_t position, const std::string& token, const Json::exception&) override {
    return fail(fmt::format("not valid JSON at offset {}, near {}", position + sizeof(uint64_t), quoted_name(token)));
  }

 private:
  bool fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }

  bool deeper() { return ++depth_ <= kMaxMetadataDepth || fail("__metadata__ nests too deep"); }

  bool top_key(const std::string& name) {
    if (!names_.insert(name).second) return fail(fmt::format("key {} appears twice", quoted_name(name)));
    metadata_ = name == "__metadata__";
    if (metadata_) return true;
    if (entries_.size() >= kMaxSafetensors) return fail(fmt::format("more than {} tensors", kMaxSafetensors));
    if (name.empty() || name.size() > kMaxTensorNameBytes) {
      return fail(fmt::format("name of {} bytes; 1 to {} are allowed", name.size(), kMaxTensorNameBytes));
    }
    entries_.emplace_back().name = name;
    return true;
  }

  std::vector<Entry> entries_;
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> fields_;  // fields of the open tensor
  std::string field_;
  bool metadata_ = false;
  size_t depth_ = 0;
  std::string problem_;
};

Result<SafetensorsTensor> place(Entry& entry, uint64_t data, const std::string& file) {
  auto error = [&](const std::string& what) {
    uint64_t offset = entry.offsets.empty() ? 0 : entry.offsets[0];
    return Error::corrupt(
        fmt::format("{}: tensor {} at data offset {}: {}", file, quoted_name(entry.name), offset, what));
  };
  if (entry.offsets.size() != 2) return error("data_offsets must hold two numbers");
  uint64_t begin = entry.offsets[0], end = entry.offsets[1];
  if (end < begin) return error(fmt::format("data_offsets end at {}, before they begin", end));
  SafetensorsTensor tensor;
  tensor.rank = static_cast<int>(entry.shape.size());
  int64_t bits = entry.dtype->bits;
  bool fits = true;
  for (size_t i = 0; i < entry.shape.size(); ++i) {
    if (entry.shape[i] > static_cast<uint64_t>(INT64_MAX))
      return error(fmt::format("dimension of size {}", entry.shape[i]));
    auto dim = static_cast<int64_t>(entry.shape[i]);
    fits = fits && multiply_checked(bits, dim, bits);
    size_t folded = entry.shape.size() > 4 ? entry.shape.size() - 4 : 0;
    int64_t& slot = tensor.dims[i < folded ? 0 : i - folded];
    fits = fits && multiply_checked(slot, dim, slot);
  }
  if (!fits) return error("its dimensions multiply to more than 2^63 bits");
  if (bits % 8 != 0) return error("its values do not fill whole bytes");
  tensor.bytes = static_cast<uint64_t>(bits) / 8;
  if (tensor.bytes != end - begin) {
    return error(fmt::format("shape and dtype {} need {} bytes, data_offsets give {}", entry.dtype->name, tensor.bytes,
                             end - begin));
  }
  if (__builtin_add_overflow(begin, data, &tensor.offset)) return error("its offset goes past 2^64");
  tensor.name = std::move(entry.name);
  tensor.dtype = entry.dtype->name;
  return tensor;
}

// The format requires that the tensors fill the data section exactly.
Result<void> check_layout(const std::vector<SafetensorsTensor>& tensors, uint64_t data, uint64_t file_bytes,
                          const std::string& file) {
  std::vector<TensorRange> ranges;
  ranges.reserve(tensors.size());
  for (const SafetensorsTensor& tensor : tensors) ranges.push_back({tensor.name, tensor.offset, tensor.bytes});
  MILLRACE_TRY_VOID(check_tensor_ranges(ranges, data, file_bytes, file));
  uint64_t end = data;
  for (const TensorRange& range : ranges) {
    if (range.offset != end) {
      return Error::corrupt(fmt::format("{}: tensor {} at offset {}: {} bytes before it belong to no tensor", file,
                                        quoted_name(range.name), range.offset, range.offset - end));
    }
    end += range.bytes;
  }
  if (end != file_bytes) {
    return Error::corrupt(fmt::format("{}: {} bytes at offset {}, after the last tensor, belong to no tensor", file,
                                      file_bytes - end, end));
  }
  return {};
}

}  // namespace

Result<std::vector<SafetensorsTensor>> parse_safetensors(std::span<const uint8_t> image, const std::string& file) {
  ByteReader reader(image);
  uint64_t header_bytes = 0;
  std::string_view header;
  if (!reader.read(header_bytes)) return Error::corrupt(fmt::format("{}: file ends inside its header", file));
  if (header_bytes > kMaxHeaderBytes) {
    return Error::corrupt(fmt::format("{}: header of {} bytes; at most {} are allowed. Is it a safetensors file?", file,
                                      header_bytes, kMaxHeaderBytes));
  }
  if (!reader.take_text(header_bytes, header)) {
    return Error::corrupt(
        fmt::format("{}: header of {} bytes extends past the end of the file ({} bytes); download it again", file,
                    header_bytes, image.size()));
  }
  HeaderReader parsed;
  if (!header.starts_with('{') || !Json::sax_parse(header.begin(), header.end(), &parsed)) {
    std::string problem = header.starts_with('{') ? parsed.problem() : "does not begin with '{'";
    return Error::corrupt(fmt::format("{}: header at offset 8: {}", file, problem));
  }
  std::vector<SafetensorsTensor> tensors;
  for (Entry& entry : parsed.entries()) {
    MILLRACE_TRY(SafetensorsTensor tensor, place(entry, reader.position(), file));
    tensors.push_back(std::move(tensor));
  }
  MILLRACE_TRY_VOID(check_layout(tensors, reader.position(), image.size(), file));
  return tensors;
}

}  // namespace millrace
