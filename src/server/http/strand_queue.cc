#include "server/http/strand_queue.h"

#include <boost/asio/defer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <new>
#include <utility>

#include "server/http/http_connection.h"

namespace millrace {

namespace asio = boost::asio;

void StrandQueue::post(std::shared_ptr<HttpConnection> connection, std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    waiting_.push_back({std::move(connection), std::move(work)});
    if (std::exchange(scheduled_, true)) return;
  }
  asio::post(io_, [this] { deliver(); });
}

void StrandQueue::deliver() {
  {
    std::lock_guard lock(mutex_);
    taken_.swap(waiting_);
  }
  for (Task& task : taken_) {
    try {  // runs immediately if the strand is free, which it nearly always is
      const auto executor = task.connection->executor();
      asio::dispatch(executor, [connection = std::move(task.connection), work = std::move(task.work)] { work(); });
    } catch (const std::bad_alloc&) {  // loses at most that request
    }
  }
  taken_.clear();
  {
    std::lock_guard lock(mutex_);
    scheduled_ = !waiting_.empty();
    if (!scheduled_) return;
  }
  asio::defer(io_, [this] { deliver(); });  // on this thread, after other pending work
}

}  // namespace millrace
