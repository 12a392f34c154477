// RedisLink: one connection to a Redis server: commands out, replies in, in the same order. hiredis encodes and parses
// them; the socket never blocks. Usage: connect(), then send() any number of commands, move() until next() has a reply
// for each. After a lost connection or a reply that is no RESP, open() is false and connect() begins again. Used by one
// thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kv/tiers/remote_link.h"
#include "kv/tiers/send_queue.h"

struct redisReader;

namespace millrace {

class RedisLink {
 public:
  // `max_value`: length of the longest reply, in bytes. A longer one ends the connection before it is in memory.
  explicit RedisLink(int64_t max_value);
  ~RedisLink();
  RedisLink(const RedisLink&) = delete;
  RedisLink& operator=(const RedisLink&) = delete;

  // Waits up to `seconds` for each address of the host. False: no connection.
  bool connect(const std::string& host, int port, double seconds);
  bool open() const { return socket_ >= 0; }
  void close();

  void send(std::initializer_list<std::string_view> command);
  int64_t unsent_bytes() const { return out_.unsent_bytes(); }
  // Waits up to `seconds` until the socket or `wake` (-1: none) is ready, then sends and receives what it can.
  void move(int wake, double seconds);
  // The next reply; nothing: it has not arrived.
  std::optional<RemoteReply> next();

 private:
  struct FreeReader {
    void operator()(redisReader* reader) const;
  };
  void receive_some();

  int64_t max_value_;
  int socket_ = -1;
  SendQueue out_;
  std::vector<char> in_;
  std::unique_ptr<redisReader, FreeReader> reader_;
};

}  // namespace millrace
