// NodeTable: the nodes of a router and what it knows of them. Every node is asked for its health, and a request that
// cannot reach its node reports it at once. Thread-safe.
//
//   unknown --healthy--> ready <--healthy-- lost        lost: the connection was refused, or several questions in turn
//                          |  --no answer--> lost             had no answer
//                          '--unhealthy, drained--> draining  its requests continue; it receives no new ones
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cluster/node_call.h"

namespace millrace {

// The part of a node in the answer to a request. mixed: all of it; prefill: computes prompts for others, too; decode:
// generates, also from prompts that others computed; store: keeps blocks for others, without a model.
enum class NodeRole { mixed, prefill, decode, store };
const char* node_role_name(NodeRole role);

struct ClusterNode {
  NodeAddress address;
  NodeRole role = NodeRole::mixed;
};

enum class NodeState { unknown, ready, draining, lost };
const char* node_state_name(NodeState state);

struct NodeView {
  size_t index = 0;
  std::string name;  // "node-1"
  std::string url;
  NodeRole role = NodeRole::mixed;
  NodeState state = NodeState::unknown;
  bool drained = false;  // by an operator
  int64_t open = 0;      // requests of this router that run there
  int64_t requests = 0;  // since the start
  int64_t failures = 0;  // requests that it did not complete
  std::string why;       // why it is not ready
};

class NodeTable {
 public:
  struct Options {
    double ask_seconds = 0.5;   // between two questions
    double answer_seconds = 5;  // without an answer, a question has failed
    int failures = 2;           // questions in turn that fail before a node is lost
    std::string key;            // API key of the nodes; "": none
  };

  // `io` must not run after this object has ended.
  NodeTable(boost::asio::io_context& io, std::vector<ClusterNode> nodes, Options options);
  ~NodeTable();

  void start();  // begins to ask
  void stop();   // asks no more

  const NodeAddress& address(size_t node) const;
  size_t size() const { return nodes_.size(); }
  std::vector<NodeView> view() const;
  NodeState state(size_t node) const;
  bool any_ready() const;  // with a model

  // A request begins on the node, or ends there. `lost`: the node could not be reached, or the connection was lost.
  void begin(size_t node);
  void end(size_t node, const std::string* lost);
  // The node receives no new requests, or does again. Returns false if no node has this name.
  bool drain(const std::string& name, bool drained);

 private:
  struct Node;
  void ask(Node& node);
  void answered(Node& node, int status, const std::string* failed);

  boost::asio::io_context& io_;
  const Options options_;
  mutable std::mutex mutex_;
  bool stopped_ = false;
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace millrace
