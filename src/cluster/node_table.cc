#include "cluster/node_table.h"

#include <fmt/format.h>

#include <boost/asio/steady_timer.hpp>
#include <chrono>

namespace millrace {

namespace asio = boost::asio;

struct NodeTable::Node {
  Node(asio::io_context& io, NodeAddress where) : address(std::move(where)), timer(io) {}
  const NodeAddress address;
  NodeView view;
  bool healthy = false;  // by the last answer
  int failed = 0;        // questions in turn
  asio::steady_timer timer;
  std::shared_ptr<NodeCall> call;
};

const char* node_role_name(NodeRole role) {
  switch (role) {
    case NodeRole::mixed: return "mixed";
    case NodeRole::prefill: return "prefill";
    case NodeRole::decode: return "decode";
    case NodeRole::store: return "store";
  }
  return "";
}

const char* node_state_name(NodeState state) {
  switch (state) {
    case NodeState::unknown: return "unknown";
    case NodeState::ready: return "ready";
    case NodeState::draining: return "draining";
    case NodeState::lost: return "lost";
  }
  return "";
}

NodeTable::NodeTable(asio::io_context& io, std::vector<ClusterNode> nodes, Options options)
    : io_(io), options_(std::move(options)) {
  for (auto& [address, role] : nodes) {
    nodes_.push_back(std::make_unique<Node>(io, std::move(address)));
    NodeView& view = nodes_.back()->view;
    view.index = nodes_.size() - 1;
    view.name = fmt::format("node-{}", nodes_.size());
    view.url = nodes_.back()->address.url();
    view.role = role;
  }
}

NodeTable::~NodeTable() { stop(); }

void NodeTable::start() {
  for (auto& node : nodes_) ask(*node);
}

void NodeTable::stop() {
  std::lock_guard lock(mutex_);
  stopped_ = true;
  for (auto& node : nodes_) {
    node->timer.cancel();
    if (node->call) node->call->cancel();
  }
}

void NodeTable::ask(Node& node) {
  NodeRequest request;
  request.target = "/health/ready";
  if (!options_.key.empty()) request.headers.emplace_back("Authorization", "Bearer " + options_.key);
  auto status = std::make_shared<int>(0);
  std::lock_guard lock(mutex_);
  if (stopped_) return;
  node.call = NodeCall::start(io_, node.address, std::move(request), options_.answer_seconds, options_.answer_seconds,
                              {.head = [status](const NodeHead& head) { *status = head.status; },
                               .end =
                                   [this, &node, status](const std::optional<Error>& failed) {
                                     answered(node, *status, failed ? &failed->message : nullptr);
                                   }});
}

void NodeTable::answered(Node& node, int status, const std::string* failed) {
  std::lock_guard lock(mutex_);
  if (stopped_) return;
  NodeView& view = node.view;
  node.failed = failed ? node.failed + 1 : 0;
  if (!failed) {
    node.healthy = status == 200;
    view.state = node.healthy && !view.drained ? NodeState::ready : NodeState::draining;
    view.why = node.healthy ? (view.drained ? "drained" : "") : fmt::format("its health is status {}", status);
  } else if (node.failed >= options_.failures || view.state == NodeState::unknown) {
    view.state = NodeState::lost;
    view.why = *failed;
  }
  node.timer.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(options_.ask_seconds)));
  node.timer.async_wait([this, &node](const boost::system::error_code& stopped) {
    if (!stopped) ask(node);
  });
}

const NodeAddress& NodeTable::address(size_t node) const { return nodes_[node]->address; }

std::vector<NodeView> NodeTable::view() const {
  std::lock_guard lock(mutex_);
  std::vector<NodeView> out;
  for (const auto& node : nodes_) out.push_back(node->view);
  return out;
}

NodeState NodeTable::state(size_t node) const {
  std::lock_guard lock(mutex_);
  return nodes_[node]->view.state;
}

bool NodeTable::any_ready() const {
  std::lock_guard lock(mutex_);
  for (const auto& node : nodes_)
    if (node->view.state == NodeState::ready && node->view.role != NodeRole::store) return true;
  return false;
}

void NodeTable::begin(size_t node) {
  std::lock_guard lock(mutex_);
  ++nodes_[node]->view.open;
  ++nodes_[node]->view.requests;
}

void NodeTable::end(size_t node, const std::string* lost) {
  std::lock_guard lock(mutex_);
  NodeView& view = nodes_[node]->view;
  --view.open;
  if (!lost) return;
  ++view.failures;
  view.state = NodeState::lost;  // until it answers the next question
  view.why = *lost;
}

bool NodeTable::drain(const std::string& name, bool drained) {
  std::lock_guard lock(mutex_);
  for (const auto& node : nodes_) {
    NodeView& view = node->view;
    if (view.name != name) continue;
    view.drained = drained;
    if (drained && view.state == NodeState::ready) view.state = NodeState::draining;
    if (!drained && view.state == NodeState::draining && node->healthy) view.state = NodeState::ready;
    view.why = drained ? "drained" : "";
    return true;
  }
  return false;
}

}  // namespace millrace
