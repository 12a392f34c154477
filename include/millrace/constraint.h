// The inputs and results of Engine::compile(), which compiles a request's constraint before its answer begins.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace millrace {

// Limits on one compilation.
struct CompileOrder {
  double seconds = 0;                                  // CPU time limit; 0: the engine's own limit
  std::shared_ptr<const std::atomic<bool>> cancelled;  // set to cancel; null: cannot be cancelled
};

// A compiled constraint. As long as a copy exists, the engine that compiled the constraint does not compile it again.
struct CompiledConstraint {
  std::vector<std::string> notes;       // parts of the constraint that are not fully enforced
  std::shared_ptr<const void> grammar;  // null: no constraint
};

}  // namespace millrace
