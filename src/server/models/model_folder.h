// ModelFolder: a cached list of the models in a folder. A scan costs a stat of every file, so the folder is scanned
// only when it has changed or the last scan is a second old, regardless of the number of callers. Thread-safe; callers
// must not hold a lock that requests wait for.
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
  int64_t looks() const { return looks_; }  // number of scans so far

 private:
  const std::string folder_;
  std::mutex mutex_;
  std::vector<ModelConfig> models_;  // `mutex_` guards this and the members below
  int64_t stamp_ = 0;                // time stamp of the folder at the last scan
  std::chrono::steady_clock::time_point looked_;
  std::atomic<int64_t> looks_{0};
};

// Modification time of a file or folder; 0: does not exist.
int64_t stamp_of(const std::string& path);

}  // namespace millrace
