// Builds small model files in memory for the loader's tests, valid or invalid.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loader/gguf_types.h"

namespace millrace::testing {

class Bytes {
 public:
  template <typename T>
  Bytes& put(T value) {
    const auto* raw = reinterpret_cast<const uint8_t*>(&value);
    bytes_.insert(bytes_.end(), raw, raw + sizeof(T));
    return *this;
  }
  Bytes& raw(std::string_view text) {
    bytes_.insert(bytes_.end(), text.begin(), text.end());
    return *this;
  }
  Bytes& text(std::string_view text) { return put(uint64_t{text.size()}).raw(text); }
  Bytes& key(std::string_view name, GgufValueType type) { return text(name).put(type); }
  Bytes& pad(size_t alignment) {
    while (bytes_.size() % alignment != 0) bytes_.push_back(0);
    return *this;
  }
  Bytes& zeros(size_t count) {
    bytes_.resize(bytes_.size() + count);
    return *this;
  }
  // Adds a GGUF header and the one key that every model has.
  Bytes& gguf(uint64_t tensors, uint64_t more_keys, uint32_t version = 3) {
    raw("GGUF").put(version).put(tensors).put(more_keys + 1);
    return key("general.architecture", GgufValueType::string).text("llama");
  }
  // Adds a tensor's entry. `dims`: innermost first, as stored.
  Bytes& info(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    text(name).put(static_cast<uint32_t>(dims.size()));
    for (uint64_t dim : dims) put(dim);
    return put(type).put(offset);
  }
  Bytes& append(const Bytes& other) {
    bytes_.insert(bytes_.end(), other.bytes_.begin(), other.bytes_.end());
    return *this;
  }

  std::vector<uint8_t>& bytes() { return bytes_; }
  std::span<const uint8_t> view() const { return bytes_; }
  std::string string() const { return {bytes_.begin(), bytes_.end()}; }

 private:
  std::vector<uint8_t> bytes_;
};

// A temporary folder, removed by the destructor.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "millrace_loader_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string path(std::string_view name = {}) const { return name.empty() ? path_ : path_ / name; }
  void write(std::string_view name, std::string_view content) const {
    std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << content;
  }

 private:
  std::filesystem::path path_;
};

// Builds a complete safetensors file from entries with contiguous data.
class SafetensorsBytes {
 public:
  SafetensorsBytes& add(std::string_view name, std::string_view dtype, std::string_view shape, const Bytes& data) {
    header_ += header_.empty() ? "{" : ",";
    size_t begin = data_.bytes().size();
    data_.append(data);
    header_ += "\"" + std::string(name) + "\":{\"dtype\":\"" + std::string(dtype) +
               "\",\"shape\":" + std::string(shape) + ",\"data_offsets\":[" + std::to_string(begin) + "," +
               std::to_string(data_.bytes().size()) + "]}";
    return *this;
  }
  std::string string() const {
    std::string header = header_ + "}";
    return Bytes().put(uint64_t{header.size()}).raw(header).append(data_).string();
  }

 private:
  std::string header_;
  Bytes data_;
};

}  // namespace millrace::testing
