// transfer_speed: how fast blocks of keys and values move between two nodes of one machine, for every transport, next
// to what the machine can do: bytes over a loopback connection, and copies in memory. A node puts the blocks of a
// prompt on its shelf (with their checksums), another one asks for them, fetches them, verifies them, and copies them
// into its pool. Both are in this process, each with its own threads, as on a machine with two nodes. Prints one JSON
// line for each, with the median of all rounds.
//
//   transfer_speed --tokens 2000 --layers 22 --kv-heads 4 --head-dim 64 --rounds 9
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include "kv/transfer/block_exchange.h"
#include "kv/transfer/node_store.h"
#include "kv/transfer/transport.h"

namespace millrace {
namespace {

struct Flags {
  int64_t tokens = 2000, layers = 22, kv_heads = 4, head_dim = 64;
  int rounds = 9;
};

double seconds_of(const std::function<void()>& work) {
  const auto began = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

void print_row(const std::string& what, int64_t bytes, std::vector<double> seconds) {
  std::ranges::sort(seconds);
  const double median = seconds[seconds.size() / 2];
  fmt::print(
      "{{\"what\": \"{}\", \"bytes\": {}, \"ms\": {:.2f}, \"lowest_ms\": {:.2f}, \"highest_ms\": {:.2f}, "
      "\"gb_per_s\": {:.3f}}}\n",
      what, bytes, median * 1e3, seconds.front() * 1e3, seconds.back() * 1e3,
      static_cast<double>(bytes) / median * 1e-9);
}

// A connection of loopback; false: there is none.
bool connect_pair(int (&ends)[2]) {
  const int listens = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* at = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listens, at, bytes) != 0 || ::listen(listens, 1) != 0 || ::getsockname(listens, at, &bytes) != 0)
    return false;
  ends[0] = ::socket(AF_INET, SOCK_STREAM, 0);
  if (::connect(ends[0], at, bytes) != 0) return false;
  ends[1] = ::accept(listens, nullptr, nullptr);
  ::close(listens);
  return ends[1] >= 0;
}

void move_by_loopback(int (&ends)[2], std::vector<char>& from, std::vector<char>& to) {
  std::thread sender([&] {
    for (size_t sent = 0; sent < from.size();) {
      const ssize_t n = ::send(ends[0], from.data() + sent, from.size() - sent, 0);
      if (n <= 0) return;
      sent += static_cast<size_t>(n);
    }
  });
  for (size_t got = 0; got < to.size();) {
    const ssize_t n = ::recv(ends[1], to.data() + got, std::min<size_t>(to.size() - got, 1 << 20), 0);
    if (n <= 0) break;
    got += static_cast<size_t>(n);
  }
  sender.join();
}

void measure_roofs(int64_t bytes, int rounds) {
  std::vector<char> from(static_cast<size_t>(bytes), 'a'), to(from.size());
  std::vector<double> copies, sends;
  int ends[2];
  if (!connect_pair(ends)) return;
  for (int i = 0; i < rounds; ++i) {
    copies.push_back(seconds_of([&] { std::memcpy(to.data(), from.data(), to.size()); }));
    sends.push_back(seconds_of([&] { move_by_loopback(ends, from, to); }));
  }
  print_row("roof: copy in memory", bytes, copies);
  print_row("roof: loopback", bytes, sends);
  ::close(ends[0]);
  ::close(ends[1]);
}

Result<void> measure(const std::string& transport, const Flags& flags) {
  KvLayout layout{find_format("f16"), 16, {}};
  for (int64_t i = 0; i < flags.layers; ++i) layout.layers.push_back({flags.kv_heads, flags.head_dim});
  const int64_t blocks = flags.tokens / layout.block_tokens, image = ImageShape::of(layout).image_bytes();
  MILLRACE_TRY(KvPool first, KvPool::create(layout, blocks + 1));
  MILLRACE_TRY(KvPool second, KvPool::create(layout, blocks + 1));
  std::vector<BlockId> ids(static_cast<size_t>(blocks));
  std::iota(ids.begin(), ids.end(), BlockId{0});
  std::vector<double> puts, loads;
  for (int round = 0; round < flags.rounds; ++round) {
    MILLRACE_TRY(auto from, BlockExchange::create({.keeps = true, .shelf = {.bytes = (blocks + 1) * image}}));
    MILLRACE_TRY(auto to, BlockExchange::create({.transport = transport}));
    const auto store_of = [&](KvPool& pool, const BlockExchange& exchange) {
      return make_node_store(pool, {.exchange = exchange.name(), .deadline_seconds = 60, .identity_text = "model"});
    };
    MILLRACE_TRY(const auto puts_into, store_of(first, *from));
    MILLRACE_TRY(const auto reads, store_of(second, *to));
    std::vector<TokenId> tokens(static_cast<size_t>(blocks * layout.block_tokens), round);
    const auto chain = prefix_chain(tokens, layout.block_tokens, 0);
    puts.push_back(seconds_of([&] {
      for (size_t i = 0; i < chain.size(); ++i) puts_into->put(chain[i], ids[i], true);
    }));
    std::vector<PrefixKey> keys;
    for (const ChainLink& link : chain) keys.push_back(link.key);
    auto ticket = from->issue(keys);
    if (!ticket) return Error::internal("no ticket");
    ticket->host = "127.0.0.1";
    to->announce(*ticket);
    int64_t moved = 0;
    loads.push_back(seconds_of([&] {
      if (reads->find(chain) < blocks) return;
      const TierTicket load = reads->load(chain, ids);
      reads->wait_layer(load, 0, 60);
      moved = reads->poll(load).blocks;
      reads->erase(load);
    }));
    if (moved != blocks) return Error::internal(fmt::format("{} of {} blocks moved", moved, blocks));
  }
  print_row("shelf: put with checksums", blocks * image, puts);
  print_row(transport + ": connect, look up, fetch, verify, copy", blocks * image, loads);
  return {};
}

int run(int argc, char** argv) {
  Flags flags;
  CLI::App app("Measures how fast blocks of keys and values move between two nodes of one machine");
  app.add_option("--tokens", flags.tokens, "Tokens of the prompt")->check(CLI::Range(16, 1 << 20));
  app.add_option("--layers", flags.layers, "Layers")->check(CLI::Range(1, 1000));
  app.add_option("--kv-heads", flags.kv_heads, "Heads of keys and values in a layer")->check(CLI::Range(1, 1000));
  app.add_option("--head-dim", flags.head_dim, "Width of a head")->check(CLI::Range(8, 1024));
  app.add_option("--rounds", flags.rounds, "Rounds; the median counts")->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  for (const auto& entry : transports().entries())
    if (const auto done = measure(entry.info.name, flags); !done.ok()) {
      fmt::print(stderr, "transfer_speed: {}\n", done.error().message);
      return 1;
    }
  measure_roofs(flags.tokens * flags.layers * flags.kv_heads * flags.head_dim * 4, flags.rounds);
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::run(argc, argv); }
