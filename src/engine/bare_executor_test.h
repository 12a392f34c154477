// An executor that computes nothing, for tests of one part of the engine: they derive from it and override what the
// part calls.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "run/executors/executor.h"

namespace millrace::testing {

class BareHome : public KvHome {
 public:
  using KvHome::KvHome;
  Result<std::unique_ptr<KvTier>> make_tier(int64_t) override { return Error::unsupported("no tier"); }
};

class BareChooser : public TokenChooser {
 public:
  Result<void> begin(StreamRef) const override { return {}; }
  Result<bool> choose(StreamRef, int64_t, TokenEvent&) override { return true; }
  void flush(StreamRef, TokenEvent&) override {}
};

// Its parts are bare ones; a derived class may replace them.
class BareExecutor : public Executor {
 public:
  // A pool of `blocks` blocks of this layout.
  explicit BareExecutor(KvLayout layout, int64_t blocks = 1) : pool_(open_pool(std::move(layout), blocks)) {
    set_parts({.home = &home_, .chooser = &chooser_});
  }
  const ExecutorLimits& limits() const override { return own_limits; }
  Result<void> check(const Request&) const override { return {}; }
  void forward(const StepInput&, StepOutput& output) override { output.clear(); }

  ExecutorLimits own_limits;

 private:
  static std::unique_ptr<KvPool> open_pool(KvLayout layout, int64_t blocks) {
    auto pool = KvPool::create(std::move(layout), blocks);
    EXPECT_TRUE(pool.ok());
    return std::make_unique<KvPool>(std::move(*pool));
  }

  std::unique_ptr<KvPool> pool_;
  BareHome home_{*pool_};
  BareChooser chooser_;
};

}  // namespace millrace::testing
