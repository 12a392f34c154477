// ModelFolder: what lies in the folder of models, as it was when somebody last looked. A look costs a stat of every
// file, so there is one only when the folder has changed or the last one is a second old, however many ask.
// Thread-safe; who asks must hold no lock that requests wait for.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "server/models/model_loader.h"

namespace millrace {

class ModelFolder {
 public:
  explicit ModelFolder(std::string folder) : folder_(std::move(folder)) {}

  bool none() const { return folder_.empty(); }
  std::vector<ModelConfig> models();
  int64_t looks() const { return looks_; }  // at the files, so far

 private:
  const std::string folder_;
  std::mutex mutex_;
  std::vector<ModelConfig> models_;  // guarded by `mutex_`, as what follows
  int64_t stamp_ = 0;                // of the folder then
  std::chrono::steady_clock::time_point looked_;
  std::atomic<int64_t> looks_{0};
};

// When a file, or a folder, was last written; 0: it is not there.
int64_t stamp_of(const std::string& path);

}  // namespace millrace
