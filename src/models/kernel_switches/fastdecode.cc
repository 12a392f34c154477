// Attention and keys in worker processes (He and Zhai, 2024, "FastDecode"): attention/workers/workers.h.
#include <fmt/format.h>

#include "models/kernel_switches/records.h"

namespace millrace {
namespace {

constexpr int64_t kMaxWorkers = 64;

Result<std::vector<std::string>> read_hosts(const std::string& text) {
  std::vector<std::string> hosts;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('+', at), text.size());
    hosts.push_back(text.substr(at, end - at));
    if (hosts.back().find(':') == std::string::npos)
      return Error::user(fmt::format("hosts: must be HOST:PORT with + between, got '{}'", text));
    at = end + 1;
  }
  if (std::ssize(hosts) > kMaxWorkers) return Error::user(fmt::format("hosts: at most {} workers", kMaxWorkers));
  return hosts;
}

Result<void> set_fastdecode(const OptionValues& options, ForwardSwitches& switches) {
  AttentionWorkerOptions workers{.count = options.integer("count"),
                                 .threads = options.integer("threads"),
                                 .batches = options.integer("batches"),
                                 .timeout_seconds = options.number("timeout"),
                                 .program = options.text("program")};
  const std::string& transport = options.text("transport");
  if (transport != "shm" && transport != "socket")
    return Error::user(fmt::format("transport: shm or socket, got '{}'", transport));
  if (transport == "socket") workers.transport = AttentionWorkerOptions::Transport::socket;
  MILLRACE_TRY(workers.hosts, read_hosts(options.text("hosts")));
  if (!workers.hosts.empty()) workers.count = std::ssize(workers.hosts);
  switches.workers = std::make_shared<const AttentionWorkerOptions>(std::move(workers));
  return {};
}

}  // namespace

extern const KernelSwitch kFastDecode = {.set = set_fastdecode};

}  // namespace millrace
