#include "server/late_json.h"

#include <utility>

namespace millrace {
namespace {

bool has_parts(const Json& json) { return json.is_structured() || json.is_binary(); }

}  // namespace

// A binary value, which no document from outside can have.
Json LateArrays::add(size_t count, Write write) {
  arrays_.push_back({count, std::move(write)});
  return Json::binary(Json::binary_t::container_type(), arrays_.size() - 1);
}

LateText::LateText(const Json& document, LateArrays arrays) : arrays_(std::move(arrays)) {
  parts_.emplace_back();
  split(document);
}

void LateText::split(const Json& json) {
  const auto text = [this]() -> std::string& { return parts_.back().text; };
  if (json.is_binary()) {
    parts_.back().array = json.get_binary().subtype();
    parts_.emplace_back();
  } else if (json.is_object()) {
    text() += '{';
    bool first = true;
    for (const auto& [name, value] : json.items()) {
      if (!std::exchange(first, false)) text() += ',';
      append_json_text(text(), name);
      text() += ':';
      split(value);
    }
    text() += '}';
  } else if (json.is_array() && std::ranges::any_of(json, has_parts)) {
    text() += '[';
    bool first = true;
    for (const Json& one : json) {
      if (!std::exchange(first, false)) text() += ',';
      split(one);
    }
    text() += ']';
  } else {
    text() += to_text(json);
  }
}

bool LateText::next(std::string& out, size_t bytes) {
  const size_t end = out.size() + bytes;
  while (part_ < parts_.size() && out.size() < end) {
    Part& part = parts_[part_];
    if (!in_array_) {
      out += std::exchange(part.text, {});
      element_ = 0;
      in_array_ = part.array.has_value();
      if (in_array_) out += '[';
    }
    if (in_array_) {
      LateArrays::Array& array = arrays_.arrays_[*part.array];
      for (; element_ < array.count && out.size() < end; ++element_) {
        if (element_ > 0) out += ',';
        array.write(out, element_);
      }
      if (element_ < array.count) break;
      out += ']';
      array.write = nullptr;
      in_array_ = false;
    }
    ++part_;
  }
  return part_ < parts_.size();
}

std::string to_text(const Json& document, LateArrays& arrays) {
  if (arrays.empty()) return to_text(document);
  std::string out;
  LateText text(document, std::exchange(arrays, {}));
  while (text.next(out, SIZE_MAX / 2)) {
  }
  return out;
}

}  // namespace millrace
