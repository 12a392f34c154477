// StrandQueue: work for the strands of connections, from a thread that must not stop for it: the engine's. A step ends
// with an event for each of its streams; posted one by one, each would wake a thread and put it to sleep again, on
// cores that the next step wants. So they are collected:
//
//   engine thread  post() post() post() -> [ letters ] -> one I/O thread takes all that are there, and again, until
//   none is
//
// One thread at a time delivers, in the order of the posts: what is posted to one connection runs in order there, one
// at a time, as work that is posted to its strand does.
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
  bool on_the_way_ = false;  // deliver() will run, or runs
  std::vector<Task> taken_;  // deliver()'s own
};

}  // namespace millrace
