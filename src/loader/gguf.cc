#include "loader/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <unordered_set>

#include "loader/file_text.h"
#include "loader/tensor_ranges.h"
#include "text/unicode.h"

namespace millrace {
namespace {

constexpr uint64_t kMaxTensors = uint64_t{1} << 20;
constexpr uint64_t kMaxNameBytes = 1024;  // the specification says 64; some writers exceed it
constexpr uint64_t kMinInfoBytes = 8 + 4 + 8 + 4 + 8;
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = 1 << 20;

struct Header {
  uint32_t version = 0;
  uint64_t tensors = 0;
  uint64_t keys = 0;
};

Result<Header> read_header(ByteReader& reader, const std::string& file) {
  std::string_view magic;
  Header header;
  if (!reader.take_text(4, magic) || magic != "GGUF") {
    return Error::corrupt(fmt::format("{}: not a GGUF file: it does not begin with 'GGUF'", file));
  }
  if (!reader.read(header.version)) return Error::corrupt(fmt::format("{}: file ends inside its header", file));
  if (header.version == 1) {
    return Error::unsupported(fmt::format("{}: GGUF version 1 is not supported; convert the file to version 3", file));
  }
  if (header.version != 2 && header.version != 3) {
    if ((header.version & 0xffff) == 0 && header.version != 0) {
      return Error::unsupported(
          fmt::format("{}: big-endian GGUF is not supported; convert the file to little-endian", file));
    }
    return Error::unsupported(fmt::format("{}: GGUF version {} is not supported; 2 and 3 are", file, header.version));
  }
  if (!reader.read(header.tensors) || !reader.read(header.keys)) {
    return Error::corrupt(fmt::format("{}: file ends inside its header", file));
  }
  if (header.tensors > kMaxTensors || header.tensors > reader.left() / kMinInfoBytes) {
    return Error::corrupt(fmt::format("{}: header declares {} tensors, more than its {} bytes can hold", file,
                                      header.tensors, reader.left()));
  }
  return header;
}

Result<uint64_t> read_alignment(const GgufMetadata& metadata, const std::string& file) {
  constexpr std::string_view kKey = "general.alignment";
  if (!metadata.has(kKey)) return kDefaultAlignment;
  std::optional<uint64_t> alignment = metadata.unsigned_value(kKey);
  if (!alignment || *alignment < 1 || *alignment > kMaxAlignment || !std::has_single_bit(*alignment)) {
    return Error::corrupt(
        fmt::format("{}: metadata key '{}': must be a power of two from 1 to {}", file, kKey, kMaxAlignment));
  }
  return *alignment;
}

// One entry of the tensor table. The offset is relative to the data section at this point.
class TensorInfoReader {
 public:
  TensorInfoReader(ByteReader& reader, const std::string& file) : reader_(reader), file_(file) {}

  Result<GgufTensor> read() {
    GgufTensor tensor;
    start_ = reader_.position();
    MILLRACE_TRY_VOID(read_name(tensor));
    MILLRACE_TRY_VOID(read_dims(tensor));
    MILLRACE_TRY_VOID(read_type(tensor));
    if (!reader_.read(tensor.offset)) return truncated(tensor);
    return tensor;
  }

 private:
  std::string where(const GgufTensor& tensor) const {
    return fmt::format("{}: tensor {} at offset {}", file_, quoted_name(tensor.name), start_);
  }
  Error truncated(const GgufTensor& tensor) const {
    return Error::corrupt(where(tensor) + ": the file ends inside the tensor table; download it again");
  }

  Result<void> read_name(GgufTensor& tensor) {
    uint64_t length = 0;
    std::string_view name;
    if (!reader_.read(length)) return truncated(tensor);
    if (length == 0 || length > kMaxNameBytes) {
      return Error::corrupt(fmt::format("{}: tensor at offset {}: name of {} bytes; 1 to {} are allowed", file_, start_,
                                        length, kMaxNameBytes));
    }
    if (!reader_.take_text(length, name)) return truncated(tensor);
    tensor.name = name;
    if (!is_valid_utf8(name)) return Error::corrupt(where(tensor) + ": name is not valid UTF-8");
    return {};
  }

  Result<void> read_dims(GgufTensor& tensor) {
    uint32_t rank = 0;
    if (!reader_.read(rank)) return truncated(tensor);
    if (rank > tensor.dims.size()) {
      return Error::corrupt(fmt::format("{}: has {} dimensions; 0 to 4 are allowed", where(tensor), rank));
    }
    tensor.rank = std::max(1, static_cast<int>(rank));       // without dimensions: one value
    for (int i = static_cast<int>(rank) - 1; i >= 0; --i) {  // stored innermost first
      uint64_t dim = 0;
      if (!reader_.read(dim)) return truncated(tensor);
      if (dim > static_cast<uint64_t>(INT64_MAX)) {
        return Error::corrupt(fmt::format("{}: dimension of size {}", where(tensor), dim));
      }
      tensor.dims[i] = static_cast<int64_t>(dim);
    }
    return {};
  }

  Result<void> read_type(GgufTensor& tensor) {
    uint32_t id = 0;
    if (!reader_.read(id)) return truncated(tensor);
    tensor.type = find_gguf_type(id);
    if (!tensor.type) return Error::corrupt(fmt::format("{}: tensor type {} is unknown", where(tensor), id));
    if (tensor.type->block_values == 0) {
      return Error::unsupported(fmt::format("{}: tensor type {} was removed from GGUF; convert the model again",
                                            where(tensor), tensor.type->name));
    }
    int64_t cols = tensor.dims[tensor.rank - 1];
    if (cols % tensor.type->block_values != 0) {
      return Error::corrupt(fmt::format("{}: rows of {} values are not whole {} blocks of {}", where(tensor), cols,
                                        tensor.type->name, tensor.type->block_values));
    }
    int64_t bytes = tensor.type->block_bytes;
    bool fits = multiply_checked(bytes, cols / tensor.type->block_values, bytes);
    int64_t values = cols;  // Tensor::values() must not overflow
    for (int i = 0; i + 1 < tensor.rank; ++i) {
      fits = fits && multiply_checked(bytes, tensor.dims[i], bytes) && multiply_checked(values, tensor.dims[i], values);
    }
    if (!fits) return Error::corrupt(where(tensor) + ": its dimensions multiply to more than 2^63 bytes");
    tensor.bytes = static_cast<uint64_t>(bytes);
    return {};
  }

  ByteReader& reader_;
  const std::string& file_;
  uint64_t start_ = 0;
};

// Converts offsets in the data section to offsets in the file, and checks them all.
Result<void> place_tensors(std::vector<GgufTensor>& tensors, uint64_t table_end, uint64_t alignment,
                           uint64_t file_bytes, const std::string& file) {
  uint64_t data =
      (table_end + alignment - 1) / alignment * alignment;  // table_end is a position in the file: no overflow
  std::vector<TensorRange> ranges;
  ranges.reserve(tensors.size());
  for (GgufTensor& tensor : tensors) {
    if (tensor.offset % alignment != 0) {
      return Error::corrupt(fmt::format("{}: tensor {} at data offset {}: not aligned to {} bytes", file,
                                        quoted_name(tensor.name), tensor.offset, alignment));
    }
    if (__builtin_add_overflow(tensor.offset, data, &tensor.offset)) {
      return Error::corrupt(
          fmt::format("{}: tensor {}: its data offset goes past 2^64", file, quoted_name(tensor.name)));
    }
    if (tensor.bytes > 0) ranges.push_back({tensor.name, tensor.offset, tensor.bytes});
  }
  return check_tensor_ranges(ranges, data, file_bytes, file);
}

}  // namespace

Result<GgufFile> parse_gguf(std::span<const uint8_t> image, const std::string& file) {
  ByteReader reader(image);
  MILLRACE_TRY(Header header, read_header(reader, file));
  GgufFile parsed;
  parsed.version = header.version;
  MILLRACE_TRY(parsed.metadata, read_gguf_metadata(reader, header.keys, file));
  MILLRACE_TRY(uint64_t alignment, read_alignment(parsed.metadata, file));

  TensorInfoReader infos(reader, file);
  for (uint64_t i = 0; i < header.tensors; ++i) {
    MILLRACE_TRY(GgufTensor tensor, infos.read());
    parsed.tensors.push_back(std::move(tensor));
  }
  std::unordered_set<std::string_view> names;
  for (const GgufTensor& tensor : parsed.tensors) {
    if (!names.insert(tensor.name).second) {
      return Error::corrupt(fmt::format("{}: tensor {} at data offset {}: name appears twice", file,
                                        quoted_name(tensor.name), tensor.offset));
    }
  }
  MILLRACE_TRY_VOID(place_tensors(parsed.tensors, reader.position(), alignment, image.size(), file));
  return parsed;
}

}  // namespace millrace
