#include "cluster/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <chrono>
#include <set>

#include "cluster/event_relay.h"
#include "cluster/prefill_call.h"
#include "kv/transfer/block_ticket.h"

namespace millrace {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

constexpr size_t kMaxAnswerBytes = size_t{256} << 20;  // of an answer that is not a stream
constexpr auto kLookAgain = std::chrono::milliseconds(100);
constexpr double kConnectSeconds = 5;

// The error with which a node that stops ends its streams (Service::shutdown_message()).
const ApiError kStops{ApiErrorKind::draining, "the server is shutting down", ""};

// Headers of a node's answer that are about its connection or its own limits.
bool is_of_node(std::string_view name) {
  static constexpr std::string_view kOwn[] = {"connection",   "content-length",   "content-type", "date",
                                              "keep-alive",   "server",           "trailer",      "upgrade",
                                              "x-request-id", "transfer-encoding"};
  return std::ranges::find(kOwn, name) != std::end(kOwn) || name.starts_with("x-ratelimit-") ||
         name.starts_with("access-control-");
}

class Forward : public std::enable_shared_from_this<Forward> {
 public:
  Forward(const ForwardShared& shared, ForwardedRequest asked, Exchange exchange)
      : shared_(shared),
        asked_(std::move(asked)),
        exchange_(std::move(exchange)),
        strand_(asio::make_strand(shared.io)),
        timer_(strand_) {
    ++shared_.counts.requests;
  }

  void begin() {
    exchange_.on_disconnect([self = shared_from_this()] {
      asio::post(self->strand_, [self] {
        if (self->over_) return;
        ++self->shared_.counts.cancelled;
        if (self->prefill_) self->prefill_->cancel();
        self->leave(nullptr);
        self->over_ = true;
        self->timer_.cancel();
      });
    });
    asio::post(strand_, [self = shared_from_this()] { self->choose(); });
  }

 private:
  // Ready nodes with one of these roles.
  std::vector<NodeView> ready_nodes(std::initializer_list<NodeRole> roles) const {
    std::vector<NodeView> ready = shared_.nodes.view();
    std::erase_if(ready, [&](const NodeView& node) {
      return node.state != NodeState::ready || std::ranges::find(roles, node.role) == roles.end();
    });
    return ready;
  }

  size_t route(const std::vector<NodeView>& ready) const {
    const RouteInput input{ready, asked_.prefix, asked_.session, asked_.number, &shared_.memory};
    return std::min(shared_.route->choose(input), ready.size() - 1);
  }

  // Sends the prompt to a node that prefills, once. Returns true while it is there. A short prompt, or one that a node
  // that generates has seen, is not sent.
  bool prefills() {
    if (std::exchange(asked_prefill_, true) || !asked_.generates || asked_.prefix.empty()) return false;
    const std::vector<NodeView> first = ready_nodes({NodeRole::prefill});
    const std::vector<NodeView> then = ready_nodes({NodeRole::mixed, NodeRole::decode});
    const bool seen = std::ranges::any_of(then, [&](const NodeView& node) {
      return shared_.memory.known(asked_.prefix, node.index) == asked_.prefix.size();
    });
    if (first.empty() || then.empty() || seen) return false;
    const size_t node = first[route(first)].index;
    shared_.memory.add(asked_.prefix, node);
    // The call must not keep this object alive, which holds the call.
    prefill_ = PrefillCall::start(shared_.io, shared_.nodes, node, asked_.request,
                                  [waiting = weak_from_this()](const std::string& ticket) {
                                    const auto self = waiting.lock();
                                    if (self) asio::post(self->strand_, [self, ticket] { self->prefilled(ticket); });
                                  });
    return true;
  }

  void prefilled(const std::string& ticket) {
    prefill_.reset();
    if (over_) return;
    ++(ticket.empty() ? shared_.counts.unprefilled : shared_.counts.prefilled);
    ticket_ = ticket;
    choose();
  }

  // Nodes that prefill answer whole requests if no others are ready.
  void choose() {
    if (over_ || prefills()) return;
    const auto room = [&](std::vector<NodeView> nodes) {
      std::erase_if(nodes, [&](const NodeView& node) { return full_.contains(node.index); });
      return nodes;
    };
    std::vector<NodeView> ready = room(ready_nodes({NodeRole::mixed, NodeRole::decode}));
    if (ready.empty()) ready = room(ready_nodes({NodeRole::prefill}));
    if (ready.empty() && !full_.empty() && refusal_) return pass_refusal();
    if (ready.empty()) return wait_for_node();
    call(ready[route(ready)]);
  }

  void wait_for_node() {
    const std::chrono::duration<double> waited = Clock::now() - waiting_since_.value_or(Clock::now());
    if (!waiting_since_) waiting_since_ = Clock::now();
    if (waited.count() >= shared_.wait_seconds)
      return fail({ApiErrorKind::busy, "no node of the cluster is ready", ""});
    after(kLookAgain, [this] { choose(); });
  }

  void call(const NodeView& node) {
    waiting_since_.reset();
    node_ = node.index;
    node_name_ = node.name;
    on_node_ = true;
    shared_.nodes.begin(*node_);
    shared_.memory.add(asked_.prefix, *node_);
    const int attempt = ++attempt_;
    head_ = {};
    whole_.clear();
    if (relay_) relay_->restart();
    NodeRequest request = asked_.request;
    if (!ticket_.empty()) request.headers.emplace_back(BlockTicket::kHeader, ticket_);
    // An event of an earlier attempt is dropped.
    const auto posted = [self = shared_from_this(), attempt](auto work) {
      asio::post(self->strand_, [self, attempt, work = std::move(work)]() mutable {
        if (!self->over_ && attempt == self->attempt_) work(*self);
      });
    };
    call_ = NodeCall::start(
        shared_.io, shared_.nodes.address(*node_), std::move(request), kConnectSeconds, 0,
        {.head =
             [posted](NodeHead head) {
               posted([head = std::move(head)](Forward& self) mutable { self.head_came(std::move(head)); });
             },
         .body =
             [posted](std::string_view bytes) {
               posted([bytes = std::string(bytes)](Forward& self) { self.body_came(bytes); });
             },
         .end =
             [posted](std::optional<Error> failed) {
               posted([failed = std::move(failed)](Forward& self) { self.ended(failed); });
             }});
    watch(attempt);
  }

  // A node that answers no more may keep its connections open.
  void watch(int attempt) {
    after(kLookAgain, [this, attempt] {
      if (attempt != attempt_ || !on_node_) return;
      if (shared_.nodes.state(*node_) == NodeState::lost) return lost("the node answers no more");
      watch(attempt);
    });
  }

  void head_came(NodeHead head) {
    head_ = std::move(head);
    const std::string_view type = head_.header("content-type");
    if (type.starts_with("text/event-stream"))
      stream_of(EventRelay::Kind::events);
    else if (type.starts_with("application/x-ndjson"))
      stream_of(EventRelay::Kind::lines);
  }

  void stream_of(EventRelay::Kind kind) {
    streams_ = true;
    if (relay_) return;
    relay_.emplace(kind, asked_.dialect->refuse_in_stream(kStops));
    if (!asked_.ping.empty()) exchange_.ping_with(reply_head(), asked_.ping);
  }

  HttpReply reply_head() const {
    HttpReply reply{
        .status = head_.status, .content_type = std::string(head_.header("content-type")), .headers = asked_.headers};
    for (const auto& [name, value] : head_.headers)
      if (!is_of_node(name)) reply.headers.emplace_back(name, value);
    reply.headers.emplace_back("Millrace-Node", node_name_);
    return reply;
  }

  void body_came(const std::string& bytes) {
    if (!streams_) {
      whole_ += bytes;
      if (whole_.size() > kMaxAnswerBytes) fail({ApiErrorKind::internal, "a node's answer is too long", ""});
      return;
    }
    std::string out;
    if (const auto taken = relay_->push(bytes, out); !taken.ok())
      return fail({ApiErrorKind::internal, taken.error().message, ""});
    pass_on(std::move(out));
    if (relay_->gave_up()) lost("the node is shutting down");
  }

  void pass_on(std::string out) {
    if (out.empty()) return;
    if (begun_) return exchange_.write(std::move(out));
    begun_ = true;
    HttpReply head = reply_head();
    head.body = std::move(out);
    exchange_.begin_stream(std::move(head));
  }

  void ended(const std::optional<Error>& failed) {
    if (failed) return lost(failed->message);
    if (head_.status == 429 || head_.status == 503) return refused();
    if (streams_) {
      if (relay_->in_event()) return lost("the stream ended within an event");
      leave(nullptr);
      finish();
      begun_ ? exchange_.finish() : exchange_.reply(reply_head());
      return;
    }
    if (begun_) return lost("the answer is no stream on this node");
    leave(nullptr);
    finish();
    HttpReply reply = reply_head();
    reply.body = std::move(whole_);
    exchange_.reply(std::move(reply));
  }

  // The node has no room, or stops: another one may have.
  void refused() {
    full_.insert(*node_);
    refusal_ = reply_head();
    refusal_->body = std::move(whole_);
    leave(nullptr);
    choose();
  }

  void pass_refusal() {
    if (begun_) return fail({ApiErrorKind::overloaded, "no node of the cluster has room", ""});
    finish();
    ++shared_.counts.failed;
    exchange_.reply(std::move(*refusal_));
  }

  void lost(const std::string& why) {
    leave(&why);
    ++shared_.counts.restarted;
    if (++losses_ >= shared_.most_losses)
      return fail(
          {ApiErrorKind::internal, fmt::format("{} nodes were lost while they answered this request", losses_), ""});
    choose();
  }

  // The request is on no node now. `why`: the node was lost.
  void leave(const std::string* why) {
    ++attempt_;
    if (call_) call_->cancel();
    call_.reset();
    if (std::exchange(on_node_, false)) shared_.nodes.end(*node_, why);
  }

  void fail(const ApiError& error) {
    leave(nullptr);
    if (over_) return;
    over_ = true;
    timer_.cancel();
    ++shared_.counts.failed;
    HttpReply reply = asked_.dialect->refuse(error);
    for (const auto& header : asked_.headers) reply.headers.push_back(header);
    if (error.kind == ApiErrorKind::busy || error.kind == ApiErrorKind::overloaded)
      reply.headers.emplace_back("Retry-After", "1");
    exchange_.end(std::move(reply), asked_.dialect->refuse_in_stream(error));
  }

  void finish() {
    over_ = true;
    timer_.cancel();
    ++shared_.counts.answered;
  }

  template <typename Work>
  void after(Clock::duration time, Work work) {
    timer_.expires_after(time);
    timer_.async_wait([self = shared_from_this(), work](const boost::system::error_code& stopped) {
      if (!stopped && !self->over_) work();
    });
  }

  const ForwardShared shared_;
  const ForwardedRequest asked_;
  const Exchange exchange_;
  asio::strand<asio::io_context::executor_type> strand_;
  asio::steady_timer timer_;
  std::optional<Clock::time_point> waiting_since_;
  std::optional<size_t> node_;
  std::string node_name_;
  std::shared_ptr<PrefillCall> prefill_;  // null: not there
  bool asked_prefill_ = false;
  std::string ticket_;  // for the prompt's blocks; "": none
  bool on_node_ = false;
  int attempt_ = 0, losses_ = 0;
  std::shared_ptr<NodeCall> call_;
  NodeHead head_;
  std::string whole_;  // an answer that is no stream
  bool streams_ = false, begun_ = false, over_ = false;
  std::optional<EventRelay> relay_;
  std::set<size_t> full_;  // nodes without room for the request
  std::optional<HttpReply> refusal_;
};

}  // namespace

void begin_forward(const ForwardShared& shared, ForwardedRequest request, const Exchange& exchange) {
  std::make_shared<Forward>(shared, std::move(request), exchange)->begin();
}

}  // namespace millrace
