// RemoteLink: one connection to a process that holds blocks: commands out, replies in, in the same order. Usage:
// connect(), then any number of commands; move() until next() has a reply for each. After a lost connection or a reply
// that cannot be one, open() is false and connect() begins again. The calls never wait, except connect() and move(). A
// transport between nodes is a link (kv/transfer/transport.h), and so is a connection to Redis. Used by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kv/prefix_key.h"

namespace millrace {

struct RemoteReply {
  enum class Kind : uint8_t { nil, integer, status, error, bytes };
  Kind kind = Kind::nil;
  int64_t integer = 0;
  std::string text;  // text of a status or an error, or the bytes
  std::string_view image =
      {};  // the bytes, in memory of the link, valid until its next call; empty: they are in `text`

  std::string_view bytes() const { return image.empty() ? std::string_view(text) : image; }
};

class RemoteLink {
 public:
  virtual ~RemoteLink() = default;

  // Connects and greets within `seconds`. Returns false if there is no connection. `refusal`: out, the other side's
  // words if it would refuse the next attempt, too, such as a wrong password; unchanged otherwise.
  virtual bool connect(double seconds, std::string& refusal) = 0;
  virtual bool open() const = 0;
  virtual void close() = 0;

  // Asks whether the block is there. Reply: integer, above 0 if it is; or error. `lease`: the lease under which the
  // other side holds the block for this reader; 0: none.
  virtual void ask(const PrefixKey& key, uint64_t lease) = 0;
  // Asks for the block's image. Reply: bytes, none of which if it is not there; or error.
  virtual void fetch(const PrefixKey& key, uint64_t lease) = 0;
  // Sends the block's image. Reply: status "OK", or error.
  virtual void store(const PrefixKey& key, std::string_view image) = 0;

  virtual int64_t unsent_bytes() const = 0;
  // Waits up to `seconds` until the connection or `wake` (-1: none) is ready, then sends and receives what it can.
  virtual void move(int wake, double seconds) = 0;
  // The next reply; nothing: it has not arrived.
  virtual std::optional<RemoteReply> next() = 0;
};

struct RemoteTimes {
  double deadline_seconds = 1;  // how long a lookup, a load, or the reply to any command may take
  double retry_seconds = 0.1;   // until the next attempt to connect; twice as long each time, up to 10 s
};

}  // namespace millrace
