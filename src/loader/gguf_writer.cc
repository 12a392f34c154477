#include "loader/gguf_writer.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "base/pending_file.h"
#include "loader/file_text.h"
#include "loader/gguf_types.h"
#include "loader/tensor_ranges.h"
#include "tensor/aligned_buffer.h"

namespace millrace {
namespace {

constexpr int64_t kAlignment = 32;  // GGUF's default: no general.alignment key is needed

int64_t align(int64_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
void put_text(std::string& out, std::string_view text) {
  put(out, uint64_t{text.size()});
  out += text;
}

template <typename T>
std::string scalar(GgufValueType type, T value) {
  std::string out;
  put(out, type);
  put(out, value);
  return out;
}

std::string array_head(GgufValueType element, size_t count) {
  std::string out;
  put(out, GgufValueType::array);
  put(out, element);
  put(out, uint64_t{count});
  return out;
}

template <typename T>
std::string array(GgufValueType element, const std::vector<T>& values) {
  std::string out = array_head(element, values.size());
  out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return out;
}

Result<PendingFile> create_output(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    return Error::user(fmt::format("{}: exists and is not a regular file; choose another name", path));
  PendingFile file(path);
  if (!file.created()) return Error::user(fmt::format("{}: cannot create: {}", path, std::strerror(errno)));
  return file;
}

// Appends at `at`, which it advances.
Result<void> append(PendingFile& file, const void* data, size_t bytes, int64_t& at) {
  if (!file.write(data, static_cast<int64_t>(bytes), at))
    return Error::resource(fmt::format("{}: cannot write: {}", file.path(), std::strerror(errno)));
  at += static_cast<int64_t>(bytes);
  return {};
}

Result<int64_t> tensor_bytes(const std::string& name, const Format* format, const std::vector<int64_t>& dims) {
  if (!format || format->gguf_type < 0) {
    return Error::unsupported(fmt::format("tensor {}: format {} cannot be stored in GGUF; choose another",
                                          quoted_name(name), format ? format->name : "(none)"));
  }
  if (dims.empty() || dims.size() > 4) {
    return Error::user(fmt::format("tensor {}: has {} dimensions; 1 to 4 are allowed", quoted_name(name), dims.size()));
  }
  int64_t bytes = format->block_bytes;
  bool fits = multiply_checked(bytes, dims.back() / format->block_values, bytes);
  for (size_t i = 0; i + 1 < dims.size(); ++i) fits = fits && multiply_checked(bytes, dims[i], bytes);
  bool positive = std::all_of(dims.begin(), dims.end(), [](int64_t dim) { return dim > 0; });
  if (!fits || !positive || dims.back() % format->block_values != 0) {
    return Error::user(fmt::format("tensor {}: dimensions {} do not fit format {} (rows of whole blocks of {})",
                                   quoted_name(name), fmt::join(dims, " x "), format->name, format->block_values));
  }
  return bytes;
}

}  // namespace

struct GgufWriter::Plan {
  std::string head;            // everything before the data section, padded
  std::vector<int64_t> bytes;  // per tensor
  int64_t total = 0;           // size of the file
};

void GgufWriter::set(std::string_view key, std::string encoded) {
  auto same = [&](const Entry& entry) { return entry.key == key; };
  auto found = std::find_if(entries_.begin(), entries_.end(), same);
  if (found != entries_.end()) {
    found->encoded = std::move(encoded);
  } else {
    entries_.push_back({std::string(key), std::move(encoded)});
  }
}

void GgufWriter::remove(std::string_view key) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.key == key; });
}

void GgufWriter::set_u32(std::string_view key, uint32_t value) { set(key, scalar(GgufValueType::u32, value)); }
void GgufWriter::set_u64(std::string_view key, uint64_t value) { set(key, scalar(GgufValueType::u64, value)); }
void GgufWriter::set_i32(std::string_view key, int32_t value) { set(key, scalar(GgufValueType::i32, value)); }
void GgufWriter::set_f32(std::string_view key, float value) { set(key, scalar(GgufValueType::f32, value)); }
void GgufWriter::set_bool(std::string_view key, bool value) {
  set(key, scalar(GgufValueType::boolean, static_cast<uint8_t>(value)));
}

void GgufWriter::set_string(std::string_view key, std::string_view value) {
  std::string out;
  put(out, GgufValueType::string);
  put_text(out, value);
  set(key, std::move(out));
}

void GgufWriter::set_strings(std::string_view key, const std::vector<std::string>& values) {
  std::string out = array_head(GgufValueType::string, values.size());
  for (const std::string& value : values) put_text(out, value);
  set(key, std::move(out));
}

void GgufWriter::set_f32s(std::string_view key, const std::vector<float>& values) {
  set(key, array(GgufValueType::f32, values));
}
void GgufWriter::set_i32s(std::string_view key, const std::vector<int32_t>& values) {
  set(key, array(GgufValueType::i32, values));
}
void GgufWriter::set_bytes(std::string_view key, const std::vector<uint8_t>& values) {
  set(key, array(GgufValueType::u8, values));
}
void GgufWriter::set_bools(std::string_view key, const std::vector<bool>& values) {
  set(key, array(GgufValueType::boolean, std::vector<uint8_t>(values.begin(), values.end())));
}

void GgufWriter::add_tensor(std::string name, const Format* format, std::vector<int64_t> dims, Produce produce) {
  tensors_.push_back({std::move(name), format, std::move(dims), std::move(produce)});
}

Result<GgufWriter::Plan> GgufWriter::plan() const {
  Plan plan;
  plan.head = "GGUF";
  put(plan.head, uint32_t{3});
  put(plan.head, uint64_t{tensors_.size()});
  put(plan.head, uint64_t{entries_.size()});
  for (const Entry& entry : entries_) {
    put_text(plan.head, entry.key);
    plan.head += entry.encoded;
  }
  std::unordered_set<std::string_view> names;
  int64_t offset = 0;  // in the data section
  for (const PendingTensor& tensor : tensors_) {
    if (!names.insert(tensor.name).second) {
      return Error::user(fmt::format("tensor {}: name appears twice", quoted_name(tensor.name)));
    }
    MILLRACE_TRY(int64_t bytes, tensor_bytes(tensor.name, tensor.format, tensor.dims));
    put_text(plan.head, tensor.name);
    put(plan.head, static_cast<uint32_t>(tensor.dims.size()));
    for (size_t i = tensor.dims.size(); i-- > 0;) put(plan.head, static_cast<uint64_t>(tensor.dims[i]));
    put(plan.head, static_cast<uint32_t>(tensor.format->gguf_type));
    put(plan.head, static_cast<uint64_t>(offset));
    plan.bytes.push_back(bytes);
    if (bytes > INT64_MAX / 2 - offset) {
      return Error::user(fmt::format("tensor {}: the file would be over 2^62 bytes", quoted_name(tensor.name)));
    }
    offset = align(offset + bytes);
  }
  plan.head.resize(static_cast<size_t>(align(static_cast<int64_t>(plan.head.size()))), '\0');
  plan.total = static_cast<int64_t>(plan.head.size()) + offset;
  return plan;
}

Result<void> GgufWriter::write(const std::string& path, const std::function<void(int64_t, int64_t)>& progress) const {
  MILLRACE_TRY(Plan laid_out, plan());
  MILLRACE_TRY(PendingFile file, create_output(path));
  int64_t written = 0;
  MILLRACE_TRY_VOID(append(file, laid_out.head.data(), laid_out.head.size(), written));
  if (progress) progress(written, laid_out.total);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    int64_t padded = align(laid_out.bytes[i]);  // the buffer is zero-filled, padding included
    MILLRACE_TRY(AlignedBuffer buffer, AlignedBuffer::allocate(padded, tensors_[i].name.c_str()));
    MILLRACE_TRY_VOID(tensors_[i].produce(buffer.data(), laid_out.bytes[i]));
    MILLRACE_TRY_VOID(append(file, buffer.data(), static_cast<size_t>(padded), written));
    if (progress) progress(written, laid_out.total);
  }
  if (!file.commit()) return Error::resource(fmt::format("{}: cannot finish writing: {}", path, std::strerror(errno)));
  return {};
}

}  // namespace millrace
