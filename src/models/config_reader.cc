#include "models/config_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/ordered_json.h"

namespace millrace {
namespace {
const nlohmann::ordered_json kEmpty = nlohmann::ordered_json::object();
}

ConfigReader::ConfigReader(const nlohmann::ordered_json& object, std::string source, std::string prefix)
    : object_(object.is_object() ? &object : &kEmpty), source_(std::move(source)), prefix_(std::move(prefix)) {}

const nlohmann::ordered_json* ConfigReader::get(std::string_view key) const {
  read_.emplace(key);
  auto found = object_->find(prefix_ + std::string(key));
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool ConfigReader::has(std::string_view key) const { return get(key) != nullptr; }
bool ConfigReader::is_array(std::string_view key) const {
  const auto* value = get(key);
  return value && value->is_array();
}

bool ConfigReader::is_text(std::string_view key) const {
  const auto* value = get(key);
  return value && value->is_string();
}

bool ConfigReader::states(std::string_view key) const {
  read_.emplace(key);
  return object_->contains(prefix_ + std::string(key));
}

void ConfigReader::wrong_type(std::string_view key, std::string_view wanted) {
  fail(Error::corrupt(
      fmt::format("{}: {}{} must be {}, is {}", source_, prefix_, key, wanted, get(key)->dump().substr(0, 60))));
}

void ConfigReader::fail(Error error) {
  if (failed_) return;
  failed_ = true;
  error_ = std::move(error);
}

Result<void> ConfigReader::status() const {
  if (failed_) return error_;
  return {};
}

int64_t ConfigReader::count(std::string_view key, int64_t min, int64_t max) {
  if (!has(key)) {
    fail(Error::corrupt(fmt::format("{}: {}{} is missing", source_, prefix_, key)));
    return min;
  }
  return count_or(key, min, min, max);
}

int64_t ConfigReader::count_or(std::string_view key, int64_t otherwise, int64_t min, int64_t max) {
  const auto* value = get(key);
  if (!value) return otherwise;
  double as_number = value->is_number() ? value->get<double>() : NAN;
  if (!(as_number >= static_cast<double>(min) && as_number <= static_cast<double>(max)) ||
      as_number != std::floor(as_number)) {
    fail(Error::corrupt(fmt::format("{}: {}{} must be a whole number between {} and {}, is {}", source_, prefix_, key,
                                    min, max, value->dump().substr(0, 60))));
    return otherwise < min ? min : otherwise;
  }
  return static_cast<int64_t>(as_number);
}

double ConfigReader::number(std::string_view key) {
  if (!has(key)) fail(Error::corrupt(fmt::format("{}: {}{} is missing", source_, prefix_, key)));
  return number_or(key, 0.0);
}

double ConfigReader::number_or(std::string_view key, double otherwise) {
  const auto* value = get(key);
  if (!value) return otherwise;
  double number = value->is_number() ? value->get<double>() : NAN;
  if (!std::isfinite(number)) {
    fail(Error::corrupt(
        fmt::format("{}: {}{} must be a number, is {}", source_, prefix_, key, value->dump().substr(0, 60))));
    return otherwise;
  }
  return number;
}

bool ConfigReader::flag_or(std::string_view key, bool otherwise) {
  const auto* value = get(key);
  if (!value) return otherwise;
  if (value->is_boolean()) return value->get<bool>();
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (number == 0.0 || number == 1.0) return number == 1.0;
  wrong_type(key, "true or false");
  return otherwise;
}

std::string ConfigReader::text_or(std::string_view key, std::string_view otherwise) {
  const auto* value = get(key);
  if (!value) return std::string(otherwise);
  if (value->is_string()) return value->get<std::string>();
  wrong_type(key, "a string");
  return std::string(otherwise);
}

std::vector<double> ConfigReader::numbers_or_empty(std::string_view key) {
  std::vector<double> out;
  const auto* value = get(key);
  if (!value) return out;
  if (!value->is_array()) {
    wrong_type(key, "a list of numbers");
    return out;
  }
  for (const auto& item : *value) {
    double number = item.is_number() ? item.get<double>() : item.is_boolean() ? item.get<bool>() : NAN;
    if (!std::isfinite(number)) {
      fail(Error::corrupt(fmt::format("{}: {}{} must hold numbers only", source_, prefix_, key)));
      return {};
    }
    out.push_back(number);
  }
  return out;
}

std::vector<std::string> ConfigReader::texts_or_empty(std::string_view key) {
  std::vector<std::string> out;
  const auto* value = get(key);
  if (!value) return out;
  if (!value->is_array() || !std::ranges::all_of(*value, [](const auto& item) { return item.is_string(); })) {
    wrong_type(key, "a list of strings");
    return out;
  }
  for (const auto& item : *value) out.push_back(item.get<std::string>());
  return out;
}

std::vector<std::string> ConfigReader::keys() const {
  std::vector<std::string> out;
  for (const auto& [name, unused] : object_->items())
    if (name.starts_with(prefix_)) out.push_back(name.substr(prefix_.size()));
  return out;
}

ConfigReader ConfigReader::object(std::string_view key) const {
  const auto* value = get(key);
  return ConfigReader(value ? *value : kEmpty, fmt::format("{}: {}{}", source_, prefix_, key));
}

}  // namespace millrace
