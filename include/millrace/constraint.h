// What a request's constraint becomes before its answer begins: Engine::compile().
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace millrace {

// How much one caller wants to spend on compiling.
struct CompileOrder {
  double seconds = 0;                                  // of the compiling thread's time; 0: as much as there may be
  std::shared_ptr<const std::atomic<bool>> cancelled;  // set by whoever wants it no more; null: never
};

// A constraint that was compiled. As long as somebody has a copy, the engine that made it compiles it no second time.
struct CompiledConstraint {
  std::vector<std::string> notes;       // what of it is only partly kept
  std::shared_ptr<const void> grammar;  // null: there is no constraint
};

}  // namespace millrace
