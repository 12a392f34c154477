// ConfigReader: typed, bounds-checked reading of a flat GGUF metadata object or a config.json. Stores the first
// failure: read everything, then check status() once. It notes which fields were looked at, so that
// refuse_unread_fields() (models/arch/unread_fields.h) finds the others. A field of another type than the reader asks
// for is an error, never its default.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

class ConfigReader {
 public:
  // `source` is used in messages; `prefix` is prepended to every key ("llama." for GGUF).
  ConfigReader(const nlohmann::ordered_json& object, std::string source, std::string prefix = "");

  bool has(std::string_view key) const;
  bool is_array(std::string_view key) const;
  bool is_text(std::string_view key) const;
  // Counts and sizes: an integer in [min, max]. Required unless there is a default.
  int64_t count(std::string_view key, int64_t min, int64_t max);
  int64_t count_or(std::string_view key, int64_t otherwise, int64_t min, int64_t max);
  double number(std::string_view key);
  double number_or(std::string_view key, double otherwise);
  bool flag_or(std::string_view key, bool otherwise);  // 0 and 1 are flags too
  std::string text_or(std::string_view key, std::string_view otherwise);
  std::vector<double> numbers_or_empty(std::string_view key);
  std::vector<std::string> texts_or_empty(std::string_view key);
  // A reader of the object under `key`; empty if absent or null.
  ConfigReader object(std::string_view key) const;

  // Names of all fields of the object that begin with the prefix, without it.
  std::vector<std::string> keys() const;
  // Returns true if the field is stored, also as JSON null.
  bool states(std::string_view key) const;
  // Returns true if a member function was called with this key.
  bool was_read(std::string_view key) const { return read_.contains(key); }
  // The field as it is stored; null if absent or JSON null.
  const nlohmann::ordered_json* value(std::string_view key) const { return get(key); }

  void fail(Error error);
  Result<void> status() const;
  const std::string& source() const { return source_; }

 private:
  const nlohmann::ordered_json* get(std::string_view key) const;  // null: absent or JSON null
  void wrong_type(std::string_view key, std::string_view wanted);
  const nlohmann::ordered_json* object_;
  std::string source_, prefix_;
  mutable std::set<std::string, std::less<>> read_;
  Error error_;
  bool failed_ = false;
};

}  // namespace millrace
