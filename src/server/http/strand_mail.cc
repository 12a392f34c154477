#include "server/http/strand_mail.h"

#include <boost/asio/defer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <new>
#include <utility>

#include "server/http/http_connection.h"

namespace millrace {

namespace asio = boost::asio;

void StrandMail::post(std::shared_ptr<HttpConnection> connection, std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    waiting_.push_back({std::move(connection), std::move(work)});
    if (std::exchange(on_the_way_, true)) return;
  }
  asio::post(io_, [this] { deliver(); });
}

void StrandMail::deliver() {
  {
    std::lock_guard lock(mutex_);
    taken_.swap(waiting_);
  }
  for (Letter& letter : taken_) {
    try {  // at once where the strand is free, which it nearly always is
      const auto executor = letter.connection->executor();
      asio::dispatch(executor, [connection = std::move(letter.connection), work = std::move(letter.work)] { work(); });
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
