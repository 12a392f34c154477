// millrace attention-worker: holds keys and values for an engine on this or another machine, and runs attention for it
// (attention/workers/worker.h). Engines of this machine start their own workers with --socket.
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

#include "attention/workers/link.h"
#include "attention/workers/worker.h"
#include "base/network_error.h"
#include "base/system.h"
#include "command.h"

namespace millrace {
namespace {

constexpr const char* kWorkerExamples = R"(Examples:
  millrace attention-worker --listen 127.0.0.1:7070
  millrace run -p "Once upon a time" --use kernel=fastdecode:hosts=127.0.0.1:7070

A worker serves one engine at a time. It trusts its network as the engine does: bind it to an address that only the
engine reaches. An engine of this machine starts workers by itself: --use kernel=fastdecode:count=2)";

struct WorkerFlags {
  std::string listen;
  int64_t memory_mb = 0;
  int64_t threads = 0;
  int socket = -1, area = -1;
};

// A listening socket at HOST:PORT.
Result<int> listen_at(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0)
    return Error::user(fmt::format("--listen: must be HOST:PORT, got '{}'", address));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(address.substr(0, colon).c_str(), address.substr(colon + 1).c_str(), &hints, &found);
  if (failed != 0) return network_error(fmt::format("--listen {}: {}", address, gai_strerror(failed)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  const int socket = ::socket(found->ai_family, found->ai_socktype, found->ai_protocol);
  const int on = 1;
  if (socket >= 0) setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (socket >= 0 && bind(socket, found->ai_addr, found->ai_addrlen) == 0 && ::listen(socket, 4) == 0) return socket;
  if (socket >= 0) close(socket);
  return network_error(fmt::format("--listen {}: the port is in use, or the address is not of this machine", address));
}

void print_address(int socket) {
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "";
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) == 0)
    getnameinfo(reinterpret_cast<sockaddr*>(&own), size, host, sizeof(host), port, sizeof(port),
                NI_NUMERICHOST | NI_NUMERICSERV);
  std::printf("attention worker on %s:%s\n", host, port);
  std::fflush(stdout);
}

Result<int> run_worker(const WorkerFlags& flags) {
  const AttentionWorkerLimits limits{flags.memory_mb << 20, flags.threads};
  if (flags.socket >= 0) {
    WorkerLink link(flags.socket, 0);
    MILLRACE_TRY_VOID(serve_attention(link, flags.area, limits));
    return 0;
  }
  if (flags.listen.empty()) return Error::user("attention-worker: needs --listen HOST:PORT");
  MILLRACE_TRY(const int socket, listen_at(flags.listen));
  print_address(socket);
  for (;;) {
    const int engine = accept(socket, nullptr, nullptr);
    if (engine < 0) continue;
    WorkerLink link(engine, 0);
    if (auto served = serve_attention(link, -1, limits); !served.ok())
      std::fprintf(stderr, "millrace: %s\n", served.error().message.c_str());
  }
}

}  // namespace

void add_worker_command(CLI::App& app) {
  auto flags = std::make_shared<WorkerFlags>();
  CLI::App* command =
      add_command(app, "attention-worker", "Hold keys and values for an engine, and run attention for it",
                  kWorkerExamples, [flags] { return run_worker(*flags); });
  command->add_option("--listen", flags->listen, "HOST:PORT to wait for an engine at; port 0: a free one");
  command->add_option("--memory", flags->memory_mb, "MB of keys, values and rows that an engine may ask for; 0: any")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  command->add_option("--threads", flags->threads, "Threads of attention; 0: as many as the engine asks for")
      ->check(CLI::Range(int64_t{0}, int64_t{1024}));
  command->add_option("--socket", flags->socket, "Socket of the engine that has started this process")->group("");
  command->add_option("--area", flags->area, "Shared memory of that engine; -1: none")->group("");
}

}  // namespace millrace
