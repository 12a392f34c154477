// CompileBudget: limits the memory and time of compiling one constraint, and stops the compilation when the client has
// disconnected. Allocations proportional to the input are charged in advance, through a BudgetShare that releases them
// in its destructor. Loops that allocate little call check() instead. A budget is used by one thread; only `cancelled`
// is shared. Errors are sticky: after the first error, every call fails with it. A caller that cannot return an error,
// such as the copy constructor of BudgetShare, can therefore leave it to the next check.
//
// Time is CPU time of the compiling thread, so that a busy machine does not reject more constraints. The clock starts
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
  int64_t bytes = int64_t{256} << 20;  // maximum held at once while compiling
  double seconds = 5;                  // CPU time
};

class CompileBudget {
 public:
  explicit CompileBudget(const CompileBounds& bounds = {}, std::shared_ptr<const std::atomic<bool>> cancelled = nullptr)
      : bounds_(bounds), cancelled_(std::move(cancelled)) {}
  CompileBudget(const CompileBudget&) = delete;
  CompileBudget& operator=(const CompileBudget&) = delete;

  // Charges bytes. Errors: unsupported (too many bytes), and those of check().
  Result<void> take(int64_t bytes);
  void give_back(int64_t bytes) noexcept { held_ -= bytes; }

  // Checks the limits. `work`: steps since the last call; the clock is read once every kStepsAClock steps. Errors:
  // unsupported (out of time), cancelled (the client has disconnected).
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

// The bytes that one object has charged to a budget. A copy charges the same amount again. Without a budget, nothing is
// counted. An object that outlives the compilation must call detach().
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

  Result<void> resize(int64_t bytes);  // sets the number of charged bytes
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
