#include "loader/gguf_metadata.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <unordered_set>

#include "base/enum_table.h"
#include "base/ordered_json.h"
#include "loader/file_text.h"
#include "loader/gguf_types.h"
#include "text/unicode.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxKeyBytes = 65535;                 // the specification's limit
constexpr uint64_t kMaxKeys = 65536;                     // real files have about fifty
constexpr uint64_t kMaxArrayValues = uint64_t{1} << 20;  // total of all arrays stored as JSON; the tokenizer's are not
constexpr int kMaxArrayDepth = 8;

class MetadataReader {
 public:
  MetadataReader(ByteReader& reader, const std::string& file) : reader_(reader), file_(file) {}

  Result<GgufMetadata> read(uint64_t count);

 private:
  Error error(const std::string& what) const {
    if (key_.data() == nullptr)
      return Error::corrupt(fmt::format("{}: metadata at offset {}: {}", file_, start_, what));
    return Error::corrupt(fmt::format("{}: metadata key {} at offset {}: {}", file_, quoted_name(key_), start_, what));
  }
  Error truncated() const {
    return error(fmt::format("the file ends inside it, {} bytes after offset {}; download it again", reader_.left(),
                             reader_.position()));
  }

  Result<void> read_key();
  Result<std::string_view> read_string();
  Result<Json> read_value(GgufValueType type, int depth);
  Result<Json> read_number(GgufValueType type);
  Result<uint64_t> read_array_header(GgufValueType& element);
  Result<bool> read_tokenizer_array(GgufValueType type, GgufMetadata& metadata);
  Result<void> read_strings(std::vector<std::string>& out);
  template <typename Stored, typename T>
  void copy_numbers(uint64_t count, std::vector<T>& out);
  Result<void> read_numbers(std::vector<float>& out);
  Result<void> read_numbers(std::vector<int32_t>& out);
  Result<void> read_bytes(std::vector<uint8_t>& out);

  ByteReader& reader_;
  const std::string& file_;
  std::string_view key_;  // current key, for messages
  uint64_t start_ = 0;    // start of its entry
  uint64_t array_values_ = 0;
};

Result<void> MetadataReader::read_key() {
  start_ = reader_.position();
  key_ = {};
  uint64_t length = 0;
  if (!reader_.read(length)) return truncated();
  if (length > kMaxKeyBytes) return error(fmt::format("key length {} is over {}", length, kMaxKeyBytes));
  if (length == 0) return error("key is empty");
  std::string_view key;
  if (!reader_.take_text(length, key)) return truncated();
  if (!is_valid_utf8(key)) return error("key is not valid UTF-8");
  key_ = key;
  return {};
}

Result<std::string_view> MetadataReader::read_string() {
  uint64_t length = 0;
  std::string_view text;
  if (!reader_.read(length)) return truncated();
  if (!reader_.take_text(length, text)) {
    return error(fmt::format("string of {} bytes does not fit into the remaining {} bytes", length, reader_.left()));
  }
  return text;
}

Result<Json> MetadataReader::read_number(GgufValueType type) {
  auto as = [&]<typename T>(T value) -> Result<Json> {
    if (!reader_.read(value)) return truncated();
    if constexpr (std::is_floating_point_v<T>) {
      return Json(static_cast<double>(value));
    } else if constexpr (std::is_unsigned_v<T>) {
      return Json(static_cast<uint64_t>(value));
    } else {
      return Json(static_cast<int64_t>(value));
    }
  };
  switch (type) {
    case GgufValueType::u8: return as(uint8_t{});
    case GgufValueType::i8: return as(int8_t{});
    case GgufValueType::u16: return as(uint16_t{});
    case GgufValueType::i16: return as(int16_t{});
    case GgufValueType::u32: return as(uint32_t{});
    case GgufValueType::i32: return as(int32_t{});
    case GgufValueType::u64: return as(uint64_t{});
    case GgufValueType::i64: return as(int64_t{});
    case GgufValueType::f32: return as(float{});
    case GgufValueType::f64: return as(double{});
    case GgufValueType::boolean: {
      uint8_t value = 0;
      if (!reader_.read(value)) return truncated();
      if (value > 1) return error(fmt::format("boolean is {}, neither 0 nor 1", value));
      return Json(value == 1);
    }
    default: return error(fmt::format("value type {} is unknown", static_cast<uint32_t>(type)));
  }
}

// Leaves the reader at the first element; ensures that the elements' minimum size fits into the file.
Result<uint64_t> MetadataReader::read_array_header(GgufValueType& element) {
  uint32_t type = 0;
  uint64_t count = 0;
  if (!reader_.read(type) || !reader_.read(count)) return truncated();
  const auto known = find_enumerator<GgufValueType>(type);
  if (!known) return error(fmt::format("array element type {} is unknown", type));
  element = *known;
  if (count > reader_.left() / static_cast<uint64_t>(gguf_value_least_bytes(element))) {
    return error(fmt::format("array of {} values does not fit into the remaining {} bytes", count, reader_.left()));
  }
  return count;
}

Result<Json> MetadataReader::read_value(GgufValueType type, int depth) {
  if (type == GgufValueType::string) {
    MILLRACE_TRY(std::string_view text, read_string());
    return Json(to_valid_utf8(text));
  }
  if (type != GgufValueType::array) return read_number(type);
  if (depth >= kMaxArrayDepth) return error(fmt::format("arrays nest deeper than {}", kMaxArrayDepth));
  GgufValueType element{};
  MILLRACE_TRY(uint64_t count, read_array_header(element));
  if (count > kMaxArrayValues - array_values_) {
    return error(fmt::format("array of {} values: arrays outside the tokenizer may have at most {} in total", count,
                             kMaxArrayValues));
  }
  array_values_ += count;
  Json values = Json::array();
  for (uint64_t i = 0; i < count; ++i) {
    MILLRACE_TRY(Json value, read_value(element, depth + 1));
    values.push_back(std::move(value));
  }
  return values;
}

Result<void> MetadataReader::read_strings(std::vector<std::string>& out) {
  GgufValueType element{};
  MILLRACE_TRY(uint64_t count, read_array_header(element));
  if (element != GgufValueType::string) return error("is an array, but not of strings");
  out.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    MILLRACE_TRY(std::string_view text, read_string());
    out.emplace_back(text);
  }
  return {};
}

template <typename Stored, typename T>
void MetadataReader::copy_numbers(uint64_t count, std::vector<T>& out) {
  out.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    Stored value{};
    reader_.read(value);  // fits: read_array_header() has checked
    out.push_back(static_cast<T>(value));
  }
}

Result<void> MetadataReader::read_numbers(std::vector<float>& out) {
  GgufValueType element{};
  MILLRACE_TRY(uint64_t count, read_array_header(element));
  if (element != GgufValueType::f32) return error("is an array, but not of 32-bit floats");
  copy_numbers<float>(count, out);
  for (float value : out) {
    if (std::isnan(value)) return error("holds a value that is not a number (NaN)");
  }
  return {};
}

Result<void> MetadataReader::read_numbers(std::vector<int32_t>& out) {
  GgufValueType element{};
  MILLRACE_TRY(uint64_t count, read_array_header(element));
  switch (element) {
    case GgufValueType::i32: copy_numbers<int32_t>(count, out); return {};
    case GgufValueType::u32: copy_numbers<uint32_t>(count, out); return {};
    case GgufValueType::u8: copy_numbers<uint8_t>(count, out); return {};
    case GgufValueType::i8: copy_numbers<int8_t>(count, out); return {};
    default: return error("is an array, but not of 32-bit integers");
  }
}

Result<void> MetadataReader::read_bytes(std::vector<uint8_t>& out) {
  GgufValueType element{};
  MILLRACE_TRY(uint64_t count, read_array_header(element));
  if (gguf_value_bytes(element) != 1) return error("is an array, but not of bytes");
  std::span<const uint8_t> bytes;
  if (!reader_.take(count, bytes)) return truncated();
  out.assign(bytes.begin(), bytes.end());
  return {};
}

// True if the entry was one of the tokenizer's arrays, which has then been read.
Result<bool> MetadataReader::read_tokenizer_array(GgufValueType type, GgufMetadata& metadata) {
  constexpr std::string_view kPrefix = "tokenizer.ggml.";
  if (!key_.starts_with(kPrefix)) return false;
  std::string_view name = key_.substr(kPrefix.size());
  bool known = name == "tokens" || name == "merges" || name == "scores" || name == "token_type" ||
               name == "precompiled_charsmap";
  if (!known) return false;
  if (type != GgufValueType::array) return error("is not an array");
  if (name == "tokens") MILLRACE_TRY_VOID(read_strings(metadata.tokens));
  if (name == "merges") MILLRACE_TRY_VOID(read_strings(metadata.merges));
  if (name == "scores") MILLRACE_TRY_VOID(read_numbers(metadata.scores));
  if (name == "token_type") MILLRACE_TRY_VOID(read_numbers(metadata.token_types));
  if (name == "precompiled_charsmap") MILLRACE_TRY_VOID(read_bytes(metadata.charsmap));
  return true;
}

Result<GgufMetadata> MetadataReader::read(uint64_t count) {
  start_ = reader_.position();
  if (count > kMaxKeys) return error(fmt::format("file declares {} keys; at most {} are supported", count, kMaxKeys));
  GgufMetadata metadata;
  metadata.values = std::make_shared<Json>(Json::object());
  // ordered_json looks keys up linearly; duplicates are detected here and the pairs appended without lookup.
  auto& object = metadata.values->get_ref<Json::object_t&>();
  std::unordered_set<std::string_view> seen;
  for (uint64_t i = 0; i < count; ++i) {
    MILLRACE_TRY_VOID(read_key());
    if (!seen.insert(key_).second) return error("key appears twice");
    uint32_t raw_type = 0;
    if (!reader_.read(raw_type)) return truncated();
    const auto type = find_enumerator<GgufValueType>(raw_type);
    if (!type) return error(fmt::format("value type {} is unknown", raw_type));
    MILLRACE_TRY(bool taken, read_tokenizer_array(*type, metadata));
    if (taken) continue;
    MILLRACE_TRY(Json value, read_value(*type, 0));
    object.std::vector<Json::object_t::value_type>::emplace_back(std::string(key_), std::move(value));
  }
  return metadata;
}

const Json* find_value(const GgufMetadata& metadata, std::string_view key) {
  auto found = metadata.values->find(key);
  return found == metadata.values->end() ? nullptr : &*found;
}

}  // namespace

bool GgufMetadata::has(std::string_view key) const { return find_value(*this, key) != nullptr; }

std::optional<uint64_t> GgufMetadata::unsigned_value(std::string_view key) const {
  const Json* value = find_value(*this, key);
  if (value && value->is_number_unsigned()) return value->get<uint64_t>();
  if (value && value->is_number_integer() && value->get<int64_t>() >= 0) return value->get<int64_t>();
  return std::nullopt;
}

std::optional<int64_t> GgufMetadata::integer(std::string_view key) const {
  const Json* value = find_value(*this, key);
  if (!value || !value->is_number_integer()) return std::nullopt;
  if (value->is_number_unsigned() && value->get<uint64_t>() > std::numeric_limits<int64_t>::max()) return std::nullopt;
  return value->get<int64_t>();
}

std::optional<double> GgufMetadata::number(std::string_view key) const {
  const Json* value = find_value(*this, key);
  const double number = value && value->is_number() ? value->get<double>() : NAN;
  return std::isnan(number) ? std::nullopt : std::optional(number);
}

std::optional<bool> GgufMetadata::boolean(std::string_view key) const {
  const Json* value = find_value(*this, key);
  return value && value->is_boolean() ? std::optional(value->get<bool>()) : std::nullopt;
}

std::optional<std::string> GgufMetadata::text(std::string_view key) const {
  const Json* value = find_value(*this, key);
  return value && value->is_string() ? std::optional(value->get<std::string>()) : std::nullopt;
}

Result<GgufMetadata> read_gguf_metadata(ByteReader& reader, uint64_t count, const std::string& file) {
  return MetadataReader(reader, file).read(count);
}

}  // namespace millrace
