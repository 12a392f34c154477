// Clock: the engine's time source; tests and simulations provide their own.
#pragma once

#include <chrono>
#include <cstdint>

namespace millrace {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now_ns() const = 0;
};

class SteadyClock final : public Clock {
 public:
  int64_t now_ns() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

class ManualClock final : public Clock {
 public:
  int64_t now_ns() const override { return now_; }
  void advance_ns(int64_t by) { now_ += by; }

 private:
  int64_t now_ = 1;
};

}  // namespace millrace
