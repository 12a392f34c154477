// CopiedModels: a fixture whose models lie in a folder of their own, next to which sources write packed caches.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "test_paths.h"

namespace millrace {

class CopiedModels : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("copied_models_test." + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Copies a file of the source tree, and returns the copy's path.
  std::string copy_of(const std::string& path) {
    const std::filesystem::path copy = folder_ / (std::to_string(count_++) + ".gguf");
    std::filesystem::copy_file(std::filesystem::path(MILLRACE_SOURCE_DIR) / path, copy);
    return copy.string();
  }

  std::filesystem::path folder_;
  int count_ = 0;
};

}  // namespace millrace
