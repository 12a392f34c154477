// CompileBudget: the memory and time that compiling one constraint may take, and whether its client is still there.
// Whatever a compiler allocates in proportion to its input is taken from here first; loops that allocate little call
// check() instead. One compilation, one thread; only `cancelled` is shared.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "base/result.h"

namespace millrace {

struct CompileBounds {
  int64_t bytes = int64_t{256} << 20;  // held at any one time while compiling
  double seconds = 10;
};

class CompileBudget {
 public:
  explicit CompileBudget(const CompileBounds& bounds = {}, std::shared_ptr<const std::atomic<bool>> cancelled = nullptr)
      : bounds_(bounds), cancelled_(std::move(cancelled)), began_(std::chrono::steady_clock::now()) {}

  // Errors: unsupported (too many bytes), and those of check().
  Result<void> take(int64_t bytes);
  void give_back(int64_t bytes) noexcept { held_ -= bytes; }

  // Errors: unsupported (out of time), cancelled (the client has gone). Reads the clock once in kChecksAClock calls.
  Result<void> check();

  int64_t held_bytes() const { return held_; }
  int64_t peak_bytes() const { return peak_; }

 private:
  static constexpr uint32_t kChecksAClock = 256;
  CompileBounds bounds_;
  std::shared_ptr<const std::atomic<bool>> cancelled_;
  std::chrono::steady_clock::time_point began_;
  int64_t held_ = 0, peak_ = 0;
  uint32_t checks_ = 0;
};

}  // namespace millrace
