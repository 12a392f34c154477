#include "loader/importance_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/ordered_json.h"
#include "base/publish.h"
#include "loader/byte_reader.h"
#include "loader/gguf.h"
#include "loader/gguf_writer.h"
#include "tensor/mapped_file.h"

namespace millrace {
namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";
constexpr int64_t kMaxName = 1 << 16;

bool usable(float value) { return std::isfinite(value) && value >= 0; }

class OlderReader {
 public:
  OlderReader(std::span<const uint8_t> image, ImportanceFile& out) : in_(image), out_(out) {}

  Result<void> read() {
    int32_t entries = 0;
    if (!in_.read(entries) || entries < 1) return wrong("is neither a GGUF file nor an importance matrix");
    for (int32_t i = 0; i < entries; ++i) MILLRACE_TRY_VOID(read_entry());
    int32_t chunks = 0;
    if (in_.left() == 0 || !in_.read(chunks)) return {};
    out_.chunks = std::max(chunks, 0);
    std::string_view text;
    if (read_text(text) && !text.empty()) out_.datasets.emplace_back(text);
    return {};
  }

 private:
  Error wrong(const std::string& what) const {
    return Error::corrupt(fmt::format("{}: {}, at offset {}", out_.path, what, in_.position()));
  }

  bool read_text(std::string_view& text) {
    int32_t length = 0;
    return in_.read(length) && length >= 0 && length <= kMaxName && in_.take_text(static_cast<uint64_t>(length), text);
  }

  Result<void> read_entry() {
    std::string_view name;
    if (!read_text(name) || name.empty()) return wrong("the name of an entry is cut short or too long");
    int32_t calls = 0, values = 0;
    if (!in_.read(calls) || !in_.read(values) || values < 1 || in_.left() / 4 < static_cast<uint64_t>(values))
      return wrong(fmt::format("entry {} is cut short", name));
    ImportanceEntry entry;
    entry.counts = {static_cast<float>(std::max(calls, 1))};
    entry.sums.resize(static_cast<size_t>(values));
    for (float& value : entry.sums)
      if (!in_.read(value) || !usable(value)) return wrong(fmt::format("entry {} holds {}", name, value));
    if (!out_.entries.emplace(name, std::move(entry)).second)
      return wrong(fmt::format("entry {} is there twice", name));
    return {};
  }

  ByteReader in_;
  ImportanceFile& out_;
};

Result<std::vector<float>> tensor_values(const GgufTensor& tensor, std::span<const uint8_t> image,
                                         const std::string& path) {
  if (!tensor.type || tensor.type->name != "F32")
    return Error::unsupported(fmt::format("{}: tensor {} has type {}, must have F32", path, tensor.name,
                                          tensor.type ? tensor.type->name : "unknown"));
  std::vector<float> out(tensor.bytes / 4);
  std::memcpy(out.data(), image.data() + tensor.offset, out.size() * 4);
  for (float value : out)
    if (!usable(value)) return Error::corrupt(fmt::format("{}: tensor {} holds {}", path, tensor.name, value));
  return out;
}

Result<void> read_gguf(std::span<const uint8_t> image, ImportanceFile& out) {
  MILLRACE_TRY(const GgufFile file, parse_gguf(image, out.path));
  if (file.metadata.text("general.type") != "imatrix")
    return Error::unsupported(
        fmt::format("{}: is a GGUF file, but no importance matrix: general.type is not imatrix", out.path));
  out.chunks = static_cast<int64_t>(file.metadata.unsigned_value("imatrix.chunk_count").value_or(0));
  out.chunk_size = static_cast<int64_t>(file.metadata.unsigned_value("imatrix.chunk_size").value_or(0));
  if (const auto sets = file.metadata.values->find("imatrix.datasets");
      sets != file.metadata.values->end() && sets->is_array())
    for (const auto& one : *sets)
      if (one.is_string()) out.datasets.push_back(one.get<std::string>());
  for (const GgufTensor& tensor : file.tensors) {
    const std::string_view name = tensor.name;
    const bool sums = name.ends_with(kSums), counts = name.ends_with(kCounts);
    if (!sums && !counts) continue;  // further statistics
    MILLRACE_TRY(std::vector<float> values, tensor_values(tensor, image, out.path));
    const std::string matrix(name.substr(0, name.size() - (sums ? kSums : kCounts).size()));
    (sums ? out.entries[matrix].sums : out.entries[matrix].counts) = std::move(values);
  }
  for (const auto& [name, entry] : out.entries)
    if (entry.sums.empty() || entry.counts.empty() || entry.sums.size() % entry.counts.size() != 0)
      return Error::corrupt(
          fmt::format("{}: {} has {} sums and {} counts; there must be a count for every expert, and "
                      "as many sums for each",
                      out.path, name, entry.sums.size(), entry.counts.size()));
  return {};
}

// As a whole, or not at all.
Result<void> write_whole(const std::string& path, const std::string& bytes) {
  const std::string partial = fmt::format("{}.{}.partial", path, ::getpid());
  std::ofstream file(partial, std::ios::binary);
  file.write(bytes.data(), std::ssize(bytes));
  file.close();
  if (file && !publish(partial, path)) return {};
  std::remove(partial.c_str());
  return Error::user(fmt::format("{}: cannot be written", path));
}

template <typename T>
void append_number(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void append_text(std::string& to, const std::string& text) {
  append_number(to, static_cast<int32_t>(text.size()));
  to += text;
}

Result<void> write_older(const ImportanceFile& file, const std::string& path) {
  const auto calls = static_cast<int32_t>(std::clamp<int64_t>(file.chunks, 1, 1 << 24));
  std::string out;
  append_number(out, static_cast<int32_t>(file.entries.size()));
  for (const auto& [name, entry] : file.entries) {
    append_text(out, name);
    append_number(out, calls);
    append_number(out, static_cast<int32_t>(entry.sums.size()));
    const size_t cols = entry.sums.size() / entry.counts.size();
    for (size_t i = 0; i < entry.sums.size(); ++i) {
      const float count = entry.counts[i / cols];
      append_number(out, count > 0 ? entry.sums[i] / count * static_cast<float>(calls) : 0.0f);
    }
  }
  append_number(out, calls);
  append_text(out, file.datasets.empty() ? std::string() : file.datasets.front());
  return write_whole(path, out);
}

}  // namespace

Result<std::vector<float>> ImportanceFile::weights(const std::string& tensor, int64_t experts, int64_t cols) const {
  const auto found = entries.find(tensor);
  if (found == entries.end()) return std::vector<float>();
  const ImportanceEntry& entry = found->second;
  const auto counts = std::ssize(entry.counts);
  if (std::ssize(entry.sums) != experts * cols || (counts != experts && counts != 1))
    return Error::user(
        fmt::format("{}: {} has {} values, but the matrix has {} inputs{}; the file belongs to another "
                    "model",
                    path, tensor, entry.sums.size(), cols, experts > 1 ? fmt::format(" and {} experts", experts) : ""));
  std::vector<float> out(entry.sums.size());
  for (int64_t e = 0; e < experts; ++e) {
    const float count = entry.counts[static_cast<size_t>(counts == 1 ? 0 : e)];
    for (int64_t i = e * cols; i < (e + 1) * cols; ++i)
      out[static_cast<size_t>(i)] = count > 0 ? entry.sums[static_cast<size_t>(i)] / count : 1.0f;
  }
  return out;
}

Result<ImportanceFile> read_importance_file(const std::string& path) {
  MILLRACE_TRY(const auto mapped, MappedFile::open(path));
  ImportanceFile out;
  out.path = path;
  const std::span<const uint8_t> image = mapped->bytes();
  const bool gguf = image.size() >= 4 && std::memcmp(image.data(), "GGUF", 4) == 0;
  MILLRACE_TRY_VOID(gguf ? read_gguf(image, out) : OlderReader(image, out).read());
  return out;
}

Result<void> write_importance_file(const ImportanceFile& file, const std::string& path) {
  if (path.ends_with(".dat")) return write_older(file, path);
  GgufWriter writer;
  writer.set_string("general.type", "imatrix");
  writer.set_strings("imatrix.datasets", file.datasets);
  writer.set_u32("imatrix.chunk_count", static_cast<uint32_t>(file.chunks));
  writer.set_u32("imatrix.chunk_size", static_cast<uint32_t>(file.chunk_size));
  const auto add = [&](const std::string& name, std::vector<int64_t> dims, const std::vector<float>& values) {
    writer.add_tensor(name, find_format("f32"), std::move(dims), [&values](uint8_t* to, int64_t) -> Result<void> {
      std::memcpy(to, values.data(), values.size() * 4);
      return {};
    });
  };
  for (const auto& [name, entry] : file.entries) {
    const auto experts = std::ssize(entry.counts);
    add(name + std::string(kSums), {experts, std::ssize(entry.sums) / experts}, entry.sums);
    add(name + std::string(kCounts), {experts, 1}, entry.counts);
  }
  return writer.write(path);
}

}  // namespace millrace
