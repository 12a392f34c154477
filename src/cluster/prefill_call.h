// PrefillCall: the first part of a request in a cluster with roles: a node computes the prompt and answers with a
// ticket for its blocks (server/generation/prefill_answer.h), which the router sends along to the node that generates.
// Without a ticket, that node computes the prompt itself.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>

#include "cluster/node_table.h"

namespace millrace {

class PrefillCall {
 public:
  // `done` is called once, on a thread of `io`, with the ticket's text; "": there is none. `nodes` outlives the call.
  static std::shared_ptr<PrefillCall> start(boost::asio::io_context& io, NodeTable& nodes, size_t node,
                                            NodeRequest request, std::function<void(std::string ticket)> done);
  // Ends the call, without `done`.
  virtual void cancel() = 0;

 protected:
  PrefillCall() = default;
  ~PrefillCall() = default;
};

}  // namespace millrace
