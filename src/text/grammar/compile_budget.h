// CompileBudget: the memory and time that compiling one constraint may take, and whether its client is still there.
// Whatever a compiler allocates in proportion to its input is taken from here first, through a BudgetShare, which gives
// it back when the thing goes; loops that allocate little call check() instead. One compilation, one thread; only
// `cancelled` is shared. After the first refusal every call is refused alike, so that a caller that cannot fail itself
// (BudgetShare's copies) leaves it to the next check.
//
// Time is what the compiling thread has worked, not what it has waited: a busy machine refuses nothing more. It begins
// with the first call.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/result.h"

namespace millrace {

struct CompileBounds {
  int64_t bytes = int64_t{256} << 20;  // held at any one time while compiling
  double seconds = 5;                  // of one core
};

class CompileBudget {
 public:
  explicit CompileBudget(const CompileBounds& bounds = {}, std::shared_ptr<const std::atomic<bool>> cancelled = nullptr)
      : bounds_(bounds), cancelled_(std::move(cancelled)) {}
  CompileBudget(const CompileBudget&) = delete;
  CompileBudget& operator=(const CompileBudget&) = delete;

  // Errors: unsupported (too many bytes), and those of check().
  Result<void> take(int64_t bytes);
  void give_back(int64_t bytes) noexcept { held_ -= bytes; }

  // Errors: unsupported (out of time), cancelled (the client has gone). `work`: steps since the last call; the clock is
  // read once in kStepsAClock of them.
  Result<void> check(int64_t work = 1);

  int64_t held_bytes() const { return held_; }
  int64_t peak_bytes() const { return peak_; }

 private:
  static constexpr int64_t kStepsAClock = 16384;
  CompileBounds bounds_;
  std::shared_ptr<const std::atomic<bool>> cancelled_;
  std::optional<Error> refused_;
  double began_ = -1;
  int64_t held_ = 0, peak_ = 0;
  int64_t steps_ = kStepsAClock;
};

// Bytes of a budget that one thing holds. A copy takes as many again. Without a budget nothing is counted. A thing that
// outlives the compilation lets go of its share with detach().
class BudgetShare {
 public:
  explicit BudgetShare(CompileBudget* budget = nullptr) : budget_(budget) {}
  BudgetShare(const BudgetShare& other) : budget_(other.budget_) { resize(other.bytes_).ok(); }
  BudgetShare(BudgetShare&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  BudgetShare& operator=(BudgetShare other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~BudgetShare() { detach(); }

  Result<void> resize(int64_t bytes);  // it holds so many from here on
  Result<void> grow(int64_t bytes) { return resize(bytes_ + bytes); }
  Result<void> check(int64_t work = 1) { return budget_ ? budget_->check(work) : Result<void>(); }
  void detach() noexcept {
    if (budget_) budget_->give_back(bytes_);
    budget_ = nullptr;
    bytes_ = 0;
  }
  int64_t bytes() const { return bytes_; }

 private:
  CompileBudget* budget_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace millrace
