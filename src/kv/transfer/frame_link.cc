#include "kv/transfer/frame_link.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace millrace {
namespace {

constexpr size_t kLinkReceive = 1 << 20;  // bytes at once

// Receives bytes, and a file that was passed with them.
ssize_t receive_with_file(int socket, std::span<char> into, int& file) {
  iovec part{into.data(), into.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(socket, &message, 0);
  const cmsghdr* head = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (!head || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) return got;
  if (file >= 0) ::close(file);
  std::memcpy(&file, CMSG_DATA(head), sizeof file);
  ::fcntl(file, F_SETFD, FD_CLOEXEC);
  return got;
}

}  // namespace

FrameLink::FrameLink(TransportOptions options)
    : options_(std::move(options)), reader_(static_cast<uint64_t>(options_.image_bytes)) {}

FrameLink::~FrameLink() { FrameLink::close(); }

void FrameLink::close() {
  if (socket_ >= 0) ::close(socket_);
  if (file_ >= 0) ::close(file_);
  socket_ = file_ = -1;
  out_.clear();
  reader_ = BlockFrameReader(static_cast<uint64_t>(options_.image_bytes));
  waiting_.clear();
}

bool FrameLink::connect(double seconds, std::string& refusal) {
  close();
  closed();
  socket_ = dial_node(seconds);
  if (open() && greet(seconds, refusal)) return true;
  close();
  return false;
}

bool FrameLink::greet(double seconds, std::string& refusal) {
  const auto begun = std::chrono::steady_clock::now();
  encode_frame({BlockFrame::Kind::hello,
                0,
                options_.identity,
                {},
                {reinterpret_cast<const char*>(options_.token.data()), options_.token.size()}},
               out_.tail());
  while (open()) {
    if (const auto frame = reader_.next()) {
      if (frame->kind == BlockFrame::Kind::refused) refusal = std::string(frame->body.substr(0, 200));
      return frame->kind == BlockFrame::Kind::welcome && welcomed(frame->body, std::exchange(file_, -1));
    }
    const double left = seconds - std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    if (left <= 0 || reader_.broken()) return false;
    move(-1, left);
  }
  return false;
}

void FrameLink::send(BlockFrame::Kind kind, const PrefixKey& key, uint64_t lease) {
  encode_frame({kind, lease, options_.identity, key, {}}, out_.tail());
  if (kind != BlockFrame::Kind::done) waiting_.push_back({kind, key, lease});
}

void FrameLink::store(const PrefixKey& key, std::string_view image) {
  encode_image_head(BlockFrame::Kind::put, options_.identity, key, image.size(), out_.tail());
  out_.tail().append(image);
  waiting_.push_back({BlockFrame::Kind::put, key, 0});
}

void FrameLink::move(int wake, double seconds) {
  if (!open()) return;
  switch (out_.move(socket_, wake, seconds)) {
    case SendQueue::Ready::no: return;
    case SendQueue::Ready::receives: return receive_some();
    case SendQueue::Ready::lost: return close();
  }
}

void FrameLink::receive_some() {
  const ssize_t got = receive_with_file(socket_, reader_.room(kLinkReceive), file_);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (got <= 0) return close();
  reader_.taken(static_cast<size_t>(got));
}

std::optional<RemoteReply> FrameLink::next() {
  if (!open()) return std::nullopt;
  const auto frame = reader_.next();
  if (!frame) {
    if (reader_.broken()) close();
    return std::nullopt;
  }
  if (!waiting_.empty() && frame->key == waiting_.front().key && frame->identity == options_.identity) {
    const Sent sent = waiting_.front();
    waiting_.pop_front();
    if (auto reply = reply_to(sent, *frame)) return reply;
  }
  close();
  return std::nullopt;
}

// Nothing: the frame is no reply to this command.
std::optional<RemoteReply> FrameLink::reply_to(const Sent& sent, const BlockFrame& frame) {
  using Kind = BlockFrame::Kind;
  if (sent.kind == Kind::ask && (frame.kind == Kind::found || frame.kind == Kind::missing))
    return RemoteReply{RemoteReply::Kind::integer, frame.kind == Kind::found, {}};
  if (sent.kind == Kind::put && frame.kind == Kind::stored) return RemoteReply{RemoteReply::Kind::status, 0, "OK"};
  if (sent.kind == Kind::put && frame.kind == Kind::missing) return RemoteReply{RemoteReply::Kind::error, 0, "no room"};
  if (sent.kind != Kind::fetch) return std::nullopt;
  if (frame.kind == Kind::missing) return RemoteReply{RemoteReply::Kind::bytes, 0, {}};
  if (frame.kind == Kind::image) return RemoteReply{RemoteReply::Kind::bytes, 0, {}, frame.body};
  if (frame.kind != Kind::range || !copy_range(frame.body, copied_)) return std::nullopt;
  send(Kind::done, sent.key, sent.lease);
  return RemoteReply{RemoteReply::Kind::bytes, 0, {}, {copied_.data(), copied_.size()}};
}

}  // namespace millrace
