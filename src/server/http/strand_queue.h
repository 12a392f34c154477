// StrandQueue: passes work from the engine thread, which must not block, to the strands of connections. A step ends
// with an event for each of its streams. Posting them one by one would wake an I/O thread for each, on cores that the
// next step needs, so they are batched:
//
//   engine thread  post() post() post() -> [ tasks ] -> one I/O thread takes all queued tasks, and repeats until empty
//
// One thread at a time delivers, in the order of the posts: tasks for one connection run in order, one at a time, like
// work posted to its strand.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace millrace {

class HttpConnection;

class StrandQueue {
 public:
  explicit StrandQueue(boost::asio::io_context& io) : io_(io) {}

  void post(std::shared_ptr<HttpConnection> connection, std::function<void()> work);

 private:
  struct Task {
    std::shared_ptr<HttpConnection> connection;
    std::function<void()> work;
  };
  void deliver();

  boost::asio::io_context& io_;
  std::mutex mutex_;
  std::vector<Task> waiting_;
  bool scheduled_ = false;   // deliver() is queued or running
  std::vector<Task> taken_;  // used by deliver() only
};

}  // namespace millrace
