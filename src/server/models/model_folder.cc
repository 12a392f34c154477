#include "server/models/model_folder.h"

#include <filesystem>

namespace millrace {

// A model's own folder can change without a change of its parent's modification time.
constexpr auto kRescan = std::chrono::seconds(1);

int64_t stamp_of(const std::string& path) {
  std::error_code failed;
  const auto time = std::filesystem::last_write_time(path, failed);
  return failed ? 0 : static_cast<int64_t>(time.time_since_epoch().count());
}

std::vector<ModelConfig> ModelFolder::models() {
  if (none()) return {};
  std::lock_guard lock(mutex_);
  const int64_t stamp = stamp_of(folder_);
  const auto now = std::chrono::steady_clock::now();
  if (looks_ > 0 && stamp == stamp_ && now - looked_ < kRescan) return models_;
  models_ = find_models(folder_);
  stamp_ = stamp;
  looked_ = now;
  ++looks_;
  return models_;
}

}  // namespace millrace
