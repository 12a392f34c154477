// An engine that steps only when the test allows it: a snapshot is requested before each step, and its sink blocks the
// engine.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include "millrace/engine.h"

namespace millrace {

class StepGate {
 public:
  explicit StepGate(Engine& engine) : state_(std::make_shared<State>()) { arm(engine, state_); }
  ~StepGate() { open(); }

  void allow(int steps) {
    std::lock_guard lock(state_->mutex);
    state_->steps += steps;
    state_->changed.notify_all();
  }
  // Opens the gate for good.
  void open() {
    std::lock_guard lock(state_->mutex);
    state_->is_open = true;
    state_->changed.notify_all();
  }
  // Waits until the engine has used up its steps and is blocked. Call it only when the engine has work.
  void wait_until_held() {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->held && state_->steps == 0; });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    int steps = 0;
    bool is_open = false, held = false;
  };
  static void arm(Engine& engine, const std::shared_ptr<State>& state) {
    static_cast<void>(engine.snapshot([&engine, state](EngineSnapshot&&) {
      std::unique_lock lock(state->mutex);
      state->held = true;
      state->changed.notify_all();
      state->changed.wait(lock, [&] { return state->is_open || state->steps > 0; });
      state->held = false;
      if (state->is_open) return;
      --state->steps;
      arm(engine, state);
    }));
  }

  std::shared_ptr<State> state_;
};

}  // namespace millrace
