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
    if (std::exchange(on_the_way_, true)) return;
  }
  asio::post(io_, [this] { deliver(); });
}

void StrandQueue::deliver() {
  {
    std::lock_guard lock(mutex_);
    taken_.swap(waiting_);
  }
  for (Task& task : taken_) {
    try {  // at once where the strand is free, which it nearly always is
      const auto executor = task.connection->executor();
      asio::dispatch(executor, [connection = std::move(task.connection), work = std::move(task.work)] { work(); });
    } catch (const std::bad_alloc&) {  // costs that request at most
    }
  }
  taken_.clear();
  {
    std::lock_guard lock(mutex_);
    on_the_way_ = !waiting_.empty();
    if (!on_the_way_) return;
  }
  asio::defer(io_, [this] { deliver(); });  // on this thread, after what else is due
}

}  // namespace millrace
