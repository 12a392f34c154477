#include "cluster/prefill_call.h"

#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <chrono>
#include <utility>

#include "base/json_text.h"
#include "kv/transfer/block_ticket.h"
#include "server/generation/prefill_answer.h"

namespace millrace {
namespace {

namespace asio = boost::asio;

constexpr size_t kMaxTicketAnswer = 64 << 10;
constexpr auto kWatchNode = std::chrono::milliseconds(100);
constexpr double kPrefillConnectSeconds = 5;

class OpenPrefill final : public PrefillCall, public std::enable_shared_from_this<OpenPrefill> {
 public:
  OpenPrefill(asio::io_context& io, NodeTable& nodes, size_t node, std::function<void(std::string)> done)
      : io_(io), nodes_(nodes), node_(node), strand_(asio::make_strand(io)), timer_(strand_), done_(std::move(done)) {}

  void begin(NodeRequest request) {
    nodes_.begin(node_);
    asio::post(strand_, [self = shared_from_this(), request = std::move(request)]() mutable {
      if (!self->over_) self->open(std::move(request));
    });
  }

  void cancel() override {
    asio::post(strand_, [self = shared_from_this()] {
      self->done_ = nullptr;
      self->leave(nullptr);
    });
  }

 private:
  void open(NodeRequest request) {
    request.headers.emplace_back(kPrefillHeader, "1");
    const auto posted = [self = shared_from_this()](auto work) {
      asio::post(self->strand_, [self, work = std::move(work)]() mutable {
        if (!self->over_) work(*self);
      });
    };
    call_ = NodeCall::start(
        io_, nodes_.address(node_), std::move(request), kPrefillConnectSeconds, 0,
        {.head =
             [posted](const NodeHead& head) { posted([status = head.status](auto& self) { self.status_ = status; }); },
         .body =
             [posted](std::string_view bytes) {
               posted([bytes = std::string(bytes)](auto& self) {
                 if (self.body_.size() < kMaxTicketAnswer) self.body_ += bytes;
               });
             },
         .end =
             [posted](std::optional<Error> failed) {
               posted([failed = std::move(failed)](auto& self) { self.ended(failed ? &failed->message : nullptr); });
             }});
    watch();
  }

  // A node that answers no more may keep its connections open.
  void watch() {
    if (over_) return;
    timer_.expires_after(kWatchNode);
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& stopped) {
      if (stopped || self->over_) return;
      const std::string silent = "the node answers no more";
      if (self->nodes_.state(self->node_) == NodeState::lost) return self->ended(&silent);
      self->watch();
    });
  }

  void ended(const std::string* failed) {
    leave(failed);
    if (const auto done = std::exchange(done_, nullptr)) done(failed ? "" : ticket());
  }

  void leave(const std::string* failed) {
    if (std::exchange(over_, true)) return;
    timer_.cancel();
    if (call_) call_->cancel();
    call_.reset();
    nodes_.end(node_, failed);
  }

  std::string ticket() const {
    const auto json = status_ == 200 ? parse_json(body_) : nlohmann::ordered_json();
    const auto found = json.is_object() ? json.find("ticket") : json.end();
    if (!json.is_object() || found == json.end() || !found->is_string()) return "";
    auto ticket = BlockTicket::parse(found->get<std::string>());
    if (!ticket) return "";
    ticket->host = nodes_.address(node_).host;
    return ticket->text();
  }

  asio::io_context& io_;
  NodeTable& nodes_;
  const size_t node_;
  asio::strand<asio::io_context::executor_type> strand_;
  asio::steady_timer timer_;
  std::function<void(std::string)> done_;
  std::shared_ptr<NodeCall> call_;
  int status_ = 0;
  std::string body_;
  bool over_ = false;
};

}  // namespace

std::shared_ptr<PrefillCall> PrefillCall::start(asio::io_context& io, NodeTable& nodes, size_t node,
                                                NodeRequest request, std::function<void(std::string)> done) {
  auto call = std::make_shared<OpenPrefill>(io, nodes, node, std::move(done));
  call->begin(std::move(request));
  return call;
}

}  // namespace millrace
