#include "workload/json_line.h"

#include "base/json_text.h"

namespace millrace {
namespace {

constexpr int64_t kMaxDepth = 32;  // each level costs memory

const Json* field(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string shown(const Json& value) {
  if (value.is_structured()) return value.is_array() ? "an array" : "an object";
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > 40 ? text.substr(0, 40) + "..." : text;
}

}  // namespace

bool is_object_with(std::string_view text, std::initializer_list<const char*> keys) {
  if (!text.starts_with('{')) return false;
  const Json object = parse_json(text, kMaxDepth);
  for (const char* key : keys)
    if (!field(object, key)) return false;
  return object.is_object();
}

Result<Json> parse_json_line(const TraceLine& line) {
  if (nests_deeper(line.text, kMaxDepth)) return line.defect(fmt::format("JSON nests deeper than {}", kMaxDepth));
  Json object = parse_json(line.text, kMaxDepth);
  if (object.is_discarded()) return line.defect("is not valid JSON");
  if (!object.is_object()) return line.defect("is not a JSON object");
  return object;
}

Result<int64_t> json_integer(const TraceLine& line, const Json& object, const char* key, int64_t min, int64_t max,
                             const std::string& what) {
  const Json* value = field(object, key);
  if (!value) return line.defect(fmt::format("{}{}: is missing", what, key));
  const bool huge = value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  if (!value->is_number_integer() || huge || value->get<int64_t>() < min || value->get<int64_t>() > max) {
    return line.defect(
        fmt::format("{}{}: must be a whole number from {} to {}, is {}", what, key, min, max, shown(*value)));
  }
  return value->get<int64_t>();
}

Result<double> json_number(const TraceLine& line, const Json& object, const char* key, double min, double max,
                           const std::string& what) {
  const Json* value = field(object, key);
  if (!value) return line.defect(fmt::format("{}{}: is missing", what, key));
  if (!value->is_number() || !(value->get<double>() >= min && value->get<double>() <= max)) {
    return line.defect(fmt::format("{}{}: must be a number from {} to {}, is {}", what, key, min, max, shown(*value)));
  }
  return value->get<double>();
}

Result<std::string> json_text(const TraceLine& line, const Json& object, const char* key, const std::string& what) {
  const Json* value = field(object, key);
  if (!value) return line.defect(fmt::format("{}{}: is missing", what, key));
  if (!value->is_string()) return line.defect(fmt::format("{}{}: must be text, is {}", what, key, shown(*value)));
  return value->get<std::string>();
}

}  // namespace millrace
