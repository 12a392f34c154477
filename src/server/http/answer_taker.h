// AnswerTaker: receives an Exchange's answer instead of a connection, such as a batch line or a resumable stream. It
// has Exchange's calls, which any thread may make; post() runs its tasks in order, one at a time.
#pragma once

#include <functional>
#include <string>

#include "server/http/http.h"

namespace millrace {

class AnswerTaker {
 public:
  virtual ~AnswerTaker() = default;
  virtual void reply(HttpReply reply) = 0;
  virtual void begin_stream(HttpReply head) = 0;
  virtual void write(std::string bytes) = 0;
  virtual void finish(std::string bytes) = 0;
  virtual void end(HttpReply reply, std::string bytes) = 0;
  virtual void ping_with(HttpReply head, std::string ping) = 0;
  virtual void post(std::function<void()> work) = 0;
  virtual void on_disconnect(std::function<void()> gone) = 0;
};

}  // namespace millrace
