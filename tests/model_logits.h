// Logits of model files that a compression wrote, for tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "formats/format.h"
#include "loader/model_files.h"
#include "model_runner.h"

namespace millrace::testing {

// Logits of seven tokens, which every golden model has.
inline std::vector<float> logits_of(const std::string& path, int threads = 1, int64_t chunk = 0) {
  auto runner = TestRunner::load(path, {.threads = threads});
  EXPECT_TRUE(runner.ok()) << path << ": " << (runner.ok() ? "" : runner.error().message);
  return runner.ok() ? (*runner)->logits({5, 17, 40, 3, 29, 21, 44}, chunk) : std::vector<float>();
}

// A stored tensor as floats; nothing if the model has none of this name.
inline std::vector<float> floats_of(const ModelFiles& files, const std::string& name) {
  const StoredTensor* stored = files.find(name);
  if (!stored) return {};
  std::vector<float> out(static_cast<size_t>(stored->tensor.values()));
  stored->tensor.format->decode(stored->tensor.data, out.data(), std::ssize(out));
  return out;
}

}  // namespace millrace::testing
