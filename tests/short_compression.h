// Short compressions of test models, for tests of whole passes.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "compress/compress.h"
#include "shared_data.h"
#include "test_paths.h"

namespace millrace::testing {

// A file that goes when the test ends.
class ScratchModel {
 public:
  ScratchModel() {
    static int made = 0;
    path_ = std::filesystem::temp_directory_path() / fmt::format("millrace_pruner_{}_{}.gguf", ::getpid(), made++);
  }
  ~ScratchModel() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  ScratchModel(const ScratchModel&) = delete;
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string golden_gguf(const std::string& name) {
  return fmt::format("{}/tests/golden/{}/model.gguf", MILLRACE_SOURCE_DIR, name);
}

// Calibrated with six windows of 64 tokens.
inline CompressOptions short_compression(const std::string& model, const std::string& output, const std::string& pass) {
  CompressOptions options;
  options.input = model;
  options.output = output;
  options.passes = {pass};
  const std::string text = read_file(std::string(MILLRACE_SOURCE_DIR) + "/models/README.md");
  options.calibration = {.name = "README.md", .text = text, .context = 64, .windows = 6};
  options.threads = 2;
  options.force = true;
  return options;
}

}  // namespace millrace::testing
