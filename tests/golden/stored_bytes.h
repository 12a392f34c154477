// Bytes of stored tensors, for tests that compare files.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "loader/model_files.h"
#include "loader/safetensors.h"
#include "shared_data.h"

namespace millrace {

// A stored tensor, before anything is unpacked.
struct StoredBytes {
  std::string type, shape, bytes;
  bool operator==(const StoredBytes&) const = default;
};
using TensorBytes = std::map<std::string, StoredBytes>;

inline std::string shape_of(std::span<const int64_t> dims) {
  std::string out;
  for (const int64_t dim : dims) out += std::to_string(dim) + " ";
  return out;
}

inline void add_gguf(const std::filesystem::path& path, TensorBytes& out) {
  const auto files = open_model_files(path.string());
  ASSERT_TRUE(files.ok()) << files.error().message;
  for (const StoredTensor& one : files->tensors)
    out[one.name] = {one.type_name,
                     shape_of(std::span(one.tensor.dims).first(static_cast<size_t>(one.tensor.rank))),
                     {reinterpret_cast<const char*>(one.tensor.data), static_cast<size_t>(one.tensor.bytes)}};
}

inline void add_safetensors(const std::filesystem::path& path, TensorBytes& out) {
  const std::string image = testing::read_file(path);
  const auto tensors = parse_safetensors({reinterpret_cast<const uint8_t*>(image.data()), image.size()}, path.string());
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  for (const SafetensorsTensor& one : *tensors)
    out[one.name] = {std::string(one.dtype), shape_of(std::span(one.dims).first(static_cast<size_t>(one.rank))),
                     image.substr(one.offset, one.bytes)};
}

// The tensors of a folder's safetensors files, or of a GGUF file.
inline TensorBytes bytes_in(const std::filesystem::path& path) {
  TensorBytes out;
  if (!std::filesystem::is_directory(path)) {
    add_gguf(path, out);
    return out;
  }
  for (const auto& entry : std::filesystem::directory_iterator(path))
    if (entry.path().extension() == ".safetensors") add_safetensors(entry.path(), out);
  return out;
}

inline void expect_same_bytes(const TensorBytes& written, const TensorBytes& expected) {
  EXPECT_FALSE(expected.empty());
  for (const auto& [name, tensor] : expected) {
    const auto found = written.find(name);
    if (found == written.end()) {
      ADD_FAILURE() << name << " was not written";
      continue;
    }
    EXPECT_EQ(found->second.type, tensor.type) << name;
    EXPECT_EQ(found->second.shape, tensor.shape) << name;
    EXPECT_TRUE(found->second.bytes == tensor.bytes) << name << " has other bytes";
  }
  for (const auto& [name, tensor] : written) EXPECT_TRUE(expected.contains(name)) << name << " is one too many";
}

}  // namespace millrace
