#include "kv/transfer/block_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/network_error.h"
#include "base/start_thread.h"
#include "base/system.h"
#include "kv/transfer/block_frame.h"

namespace millrace {
namespace {

constexpr size_t kServedReceive = 256 << 10;         // bytes at once
constexpr size_t kMaxUnsentBytes = size_t{4} << 20;  // beyond it, no further frame of the connection is read
constexpr size_t kMaxReaders = 256;
constexpr uint64_t kMaxPutBytes = uint64_t{256} << 20;
constexpr auto kGreetingLimit = std::chrono::seconds(5);

bool same_token(std::string_view given, const TransferToken& token) {
  if (given.size() != token.size()) return false;
  unsigned differ = 0;
  for (size_t i = 0; i < token.size(); ++i) differ |= static_cast<uint8_t>(given[i]) ^ token[i];
  return differ == 0;
}

// Sends the text, and the file with its first byte.
bool send_with_file(int socket, std::string_view text, int file) {
  iovec part{const_cast<char*>(text.data()), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(head), &file, sizeof file);
  return ::sendmsg(socket, &message, 0) == static_cast<ssize_t>(text.size());
}

}  // namespace

std::string transfer_socket_path(int port) {
  std::error_code failed;
  const auto folder = std::filesystem::temp_directory_path(failed);
  return fmt::format("{}/millrace-blocks-{}-{}", failed ? "/tmp" : folder.string(), ::getuid(), port);
}

// One reader.
class BlockServer::Connection {
 public:
  Connection(BlockShelf& shelf, const Options& options, int socket, bool local)
      : shelf_(shelf), options_(options), socket_(socket), local_(local), reader_(0) {}  // no image before the greeting
  ~Connection() {
    if (lease_ != 0) shelf_.end(lease_);
    ::close(socket_);
  }

  int socket() const { return socket_; }
  bool open() const { return !closed_ && (greeted_ || std::chrono::steady_clock::now() - since_ < kGreetingLimit); }
  bool unsent() const { return sent_ < out_.size(); }
  bool takes_more() const { return out_.size() - sent_ < kMaxUnsentBytes; }

  void receive() {
    const std::span<char> room = reader_.room(kServedReceive);
    const ssize_t got = ::recv(socket_, room.data(), room.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (got <= 0) {
      closed_ = true;
      return;
    }
    reader_.taken(static_cast<size_t>(got));
    answer();
  }

  void send() {
    while (unsent()) {
      const ssize_t written = send_quietly(socket_, out_.data() + sent_, out_.size() - sent_);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (written <= 0) {
        closed_ = true;
        return;
      }
      sent_ += static_cast<size_t>(written);
    }
    out_.clear();
    sent_ = 0;
    answer();  // frames that waited for room
  }

 private:
  using Kind = BlockFrame::Kind;

  void answer() {
    while (!closed_ && takes_more()) {
      const auto frame = reader_.next();
      if (!frame) break;
      if (greeted_)
        take(*frame);
      else
        greet(*frame);
    }
    closed_ |= reader_.broken();
  }

  void reply(Kind kind, const BlockFrame& to, std::string_view body = {}) {
    encode_frame({kind, to.lease, to.identity, to.key, body}, out_);
  }

  void greet(const BlockFrame& hello) {
    if (hello.kind != Kind::hello || !same_token(hello.body, options_.token)) {
      reply(Kind::refused, hello, "another cluster's key");
      closed_ = true;  // first, because send() takes the frames that follow
      send();
      return;
    }
    greeted_ = true;
    reader_.accept_images(std::min<uint64_t>(kMaxPutBytes, shelf_.memory_bytes()));
    if (options_.open_reads) lease_ = shelf_.open_lease();
    const uint64_t memory = local_ ? shelf_.memory_bytes() : 0;
    reply(Kind::welcome, hello, {reinterpret_cast<const char*>(&memory), sizeof memory});
    if (!local_) return;
    closed_ = !send_with_file(socket_, out_, shelf_.memory_file());
    out_.clear();
  }

  void take(const BlockFrame& frame) {
    const ShelfBlock block{frame.identity, frame.key};
    const uint64_t lease = frame.lease != 0 ? frame.lease : lease_;
    switch (frame.kind) {
      case Kind::ask: return reply(shelf_.hold(lease, block) ? Kind::found : Kind::missing, frame);
      case Kind::fetch: return fetch(lease, block, frame);
      case Kind::done: return shelf_.done(lease, block);
      case Kind::put: return put(block, frame);
      default: closed_ = true;
    }
  }

  void fetch(uint64_t lease, const ShelfBlock& block, const BlockFrame& frame) {
    const bool there = shelf_.read(lease, block, [&](std::span<const uint8_t> image, uint64_t offset) {
      if (local_) return reply(Kind::range, frame, encode_range({offset, image.size()}));
      encode_image_head(Kind::image, frame.identity, frame.key, image.size(), out_);
      out_.append(reinterpret_cast<const char*>(image.data()), image.size());
    });
    if (!there) return reply(Kind::missing, frame);
    if (!local_) shelf_.done(lease, block);
  }

  void put(const ShelfBlock& block, const BlockFrame& frame) {
    const auto parent = options_.accepts ? parent_in_image(frame.body) : std::nullopt;
    const bool stored =
        parent && shelf_.put(block, *parent, static_cast<int64_t>(frame.body.size()), [&](std::span<uint8_t> into) {
          std::memcpy(into.data(), frame.body.data(), into.size());
        });
    reply(stored ? Kind::stored : Kind::missing, frame);
  }

  BlockShelf& shelf_;
  const Options& options_;
  const int socket_;
  const bool local_;
  bool greeted_ = false, closed_ = false;
  uint64_t lease_ = 0;  // of the connection; 0: readers need one of a request
  const std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  BlockFrameReader reader_;
  std::string out_;
  size_t sent_ = 0;  // bytes of out_
};

Result<std::unique_ptr<BlockServer>> BlockServer::start(BlockShelf& shelf, Options options) {
  auto server = std::unique_ptr<BlockServer>(new BlockServer(shelf, std::move(options)));
  MILLRACE_TRY_VOID(server->listen_tcp());
  MILLRACE_TRY_VOID(server->listen_local());
  if (!open_pipe(server->stop_)) return Error::resource(fmt::format("a pipe: {}", std::strerror(errno)));
  MILLRACE_TRY(server->thread_, start_thread("server of blocks", [its = server.get()] { its->loop(); }));
  return server;
}

BlockServer::~BlockServer() {
  if (thread_.joinable()) {
    const char byte = 0;
    (void)!::write(stop_[1], &byte, 1);
    thread_.join();
  }
  if (local_ >= 0) ::unlink(transfer_socket_path(port_).c_str());
  for (const int one : {tcp_, local_, stop_[0], stop_[1]})
    if (one >= 0) ::close(one);
}

Result<void> BlockServer::listen_tcp() {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const auto fail = [&](const char* why) {
    return network_error(fmt::format("blocks at {}:{}: {}", options_.host, options_.port, why));
  };
  if (const int failed = ::getaddrinfo(options_.host.c_str(), std::to_string(options_.port).c_str(), &wanted, &found))
    return fail(::gai_strerror(failed));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, ::freeaddrinfo);
  tcp_ = open_socket(found->ai_family, found->ai_socktype, found->ai_protocol);
  const int on = 1;
  if (tcp_ < 0 || ::setsockopt(tcp_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(tcp_, found->ai_addr, found->ai_addrlen) != 0 || ::listen(tcp_, 64) != 0)
    return fail(std::strerror(errno));
  sockaddr_storage bound{};
  socklen_t bytes = sizeof bound;
  if (::getsockname(tcp_, reinterpret_cast<sockaddr*>(&bound), &bytes) != 0) return fail(std::strerror(errno));
  port_ = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                            : reinterpret_cast<sockaddr_in&>(bound).sin_port);
  return {};
}

// Without a local socket, readers on this machine use TCP.
Result<void> BlockServer::listen_local() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = transfer_socket_path(port_);
  if (path.size() >= sizeof address.sun_path) return {};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  local_ = open_socket(AF_UNIX, SOCK_STREAM, 0);
  if (local_ < 0) return Error::resource(fmt::format("{}: {}", path, std::strerror(errno)));
  ::unlink(path.c_str());  // of a process that was killed: the port was free
  if (::bind(local_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0 || ::listen(local_, 64) != 0)
    return network_error(fmt::format("{}: {}", path, std::strerror(errno)));
  return {};
}

void BlockServer::loop() {
  std::vector<std::unique_ptr<Connection>> open;
  std::vector<pollfd> ready;
  for (;;) {
    std::erase_if(open, [](const auto& one) { return !one->open(); });
    ready.assign({{stop_[0], POLLIN, 0}, {tcp_, POLLIN, 0}, {local_, POLLIN, 0}});
    for (const auto& one : open)
      ready.push_back(
          {one->socket(), static_cast<short>((one->takes_more() ? POLLIN : 0) | (one->unsent() ? POLLOUT : 0)), 0});
    if (::poll(ready.data(), ready.size(), 1000) < 0 && errno != EINTR) return;
    if (ready[0].revents) return;
    for (size_t i = 0; i < open.size(); ++i) {
      const short events = ready[i + 3].revents;
      if (events & POLLOUT) open[i]->send();
      if (events & (POLLIN | POLLHUP | POLLERR)) open[i]->receive();
      if (open[i]->unsent()) open[i]->send();
    }
    for (size_t listening = 1; listening <= 2; ++listening) {
      if (!(ready[listening].revents & POLLIN)) continue;
      const int made = ::accept(ready[listening].fd, nullptr, nullptr);
      if (made < 0) {
        if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        continue;
      }
      const int on = 1;
      if (listening == 1) ::setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      ::fcntl(made, F_SETFL, O_NONBLOCK);
      ::fcntl(made, F_SETFD, FD_CLOEXEC);
      if (open.size() < kMaxReaders)
        open.push_back(std::make_unique<Connection>(shelf_, options_, made, listening == 2));
      else
        ::close(made);
    }
  }
}

}  // namespace millrace
