// An executor that computes nothing, for tests of one part of the engine: they derive from it and override what the
// part calls.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "run/executor.h"

namespace millrace::testing {

class BareExecutor : public Executor {
 public:
  // A pool of `blocks` blocks of this layout.
  explicit BareExecutor(KvLayout layout, int64_t blocks = 1) {
    auto pool = KvPool::create(std::move(layout), blocks);
    EXPECT_TRUE(pool.ok());
    pool_ = std::make_unique<KvPool>(std::move(*pool));
  }
  const ExecutorLimits& limits() const override { return own_limits; }
  KvPool& kv() override { return *pool_; }
  Result<std::unique_ptr<KvTier>> make_tier(int64_t) override { return Error::unsupported("no tier"); }
  Result<void> check(const Request&) const override { return {}; }
  Result<void> begin(LiveStream&) const override { return {}; }
  void forward(std::span<const StepWork>) override {}
  Result<bool> choose(LiveStream&, int64_t, TokenEvent&) override { return true; }
  void flush(LiveStream&, TokenEvent&) override {}

  ExecutorLimits own_limits;

 private:
  std::unique_ptr<KvPool> pool_;
};

}  // namespace millrace::testing
