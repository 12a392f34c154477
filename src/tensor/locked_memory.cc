#include "tensor/locked_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/memory_accounts.h"

namespace millrace {

Result<void> lock_memory(std::span<const uint8_t> memory) {
  if (memory.empty() || ::mlock(memory.data(), memory.size()) == 0) return {};
  return Error::resource(
      fmt::format("cannot lock {} of weights in memory: {}; raise the limit (ulimit -l), or do not lock them",
                  format_bytes(static_cast<int64_t>(memory.size())), std::strerror(errno)));
}

}  // namespace millrace
