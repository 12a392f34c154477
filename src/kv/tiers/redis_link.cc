#include "kv/tiers/redis_link.h"

#include <hiredis/hiredis.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <utility>

#include "kv/tiers/dial.h"

namespace millrace {
namespace {

constexpr int64_t kReceiveBytes = 256 << 10;  // at once

using ReplyKind = RemoteReply::Kind;

// hiredis calls these; an exception must not pass through it. Null: it reports an error, which ends the connection.
void* make_reply(ReplyKind kind, int64_t integer, std::string_view text) noexcept {
  try {
    return new RemoteReply{kind, integer, std::string(text)};
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* make_text(const redisReadTask* task, char* text, size_t bytes) {
  const ReplyKind kind = task->type == REDIS_REPLY_ERROR    ? ReplyKind::error
                         : task->type == REDIS_REPLY_STATUS ? ReplyKind::status
                                                            : ReplyKind::bytes;
  return make_reply(kind, 0, {text, bytes});
}
void* refuse_array(const redisReadTask*, int) { return nullptr; }  // no command that is sent has one as its reply
void* make_integer(const redisReadTask*, long long value) { return make_reply(ReplyKind::integer, value, {}); }
void* make_nil(const redisReadTask*) { return make_reply(ReplyKind::nil, 0, {}); }
void free_reply(void* reply) { delete static_cast<RemoteReply*>(reply); }

redisReplyObjectFunctions reply_functions = {make_text, refuse_array, make_integer, make_nil, free_reply};

}  // namespace

void RedisLink::FreeReader::operator()(redisReader* reader) const { redisReaderFree(reader); }

RedisLink::RedisLink(int64_t max_value) : max_value_(max_value), in_(static_cast<size_t>(kReceiveBytes)) {}
RedisLink::~RedisLink() { close(); }

void RedisLink::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
  out_.clear();
  reader_.reset();
}

bool RedisLink::connect(const std::string& host, int port, double seconds) {
  close();
  socket_ = dial(host, port, seconds);
  if (socket_ < 0) return false;
  reader_.reset(redisReaderCreateWithFunctions(&reply_functions));
  if (!reader_) close();
  return open();
}

void RedisLink::send(std::initializer_list<std::string_view> command) {
  std::vector<const char*> texts;
  std::vector<size_t> bytes;
  for (const std::string_view part : command) {
    texts.push_back(part.data());
    bytes.push_back(part.size());
  }
  char* encoded = nullptr;
  const int length = redisFormatCommandArgv(&encoded, static_cast<int>(texts.size()), texts.data(), bytes.data());
  if (length < 0) return close();
  out_.tail().append(encoded, static_cast<size_t>(length));
  redisFreeCommand(encoded);
}

void RedisLink::move(int wake, double seconds) {
  if (!open()) return;
  switch (out_.move(socket_, wake, seconds)) {
    case SendQueue::Ready::no: return;
    case SendQueue::Ready::receives: return receive_some();
    case SendQueue::Ready::lost: return close();
  }
}

void RedisLink::receive_some() {
  const ssize_t bytes = ::recv(socket_, in_.data(), in_.size(), 0);
  if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (bytes <= 0) return close();
  // The reader holds less than one reply, because next() takes all complete ones.
  const auto held = static_cast<int64_t>(reader_->len - reader_->pos);
  if (held > max_value_ + kReceiveBytes || redisReaderFeed(reader_.get(), in_.data(), static_cast<size_t>(bytes)) != 0)
    close();
}

std::optional<RemoteReply> RedisLink::next() {
  if (!open()) return std::nullopt;
  void* reply = nullptr;
  if (redisReaderGetReply(reader_.get(), &reply) != REDIS_OK) {
    close();
    return std::nullopt;
  }
  if (!reply) return std::nullopt;
  const std::unique_ptr<RemoteReply> owned(static_cast<RemoteReply*>(reply));
  return std::move(*owned);
}

}  // namespace millrace
