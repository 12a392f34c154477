// Forward: one request on its way through a router: chooses a node, passes the answer on, and begins again on another
// node if that one is lost. Runs on a strand of its own and keeps itself alive until the answer has ended.
//
//   prefill --> choose --> call --> head --> body ... --> end        prefill: if there are nodes for it
//                ^         |        |        |
//                +---------+--------+--------+  the node is lost, or refuses for lack of room
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cluster/node_table.h"
#include "cluster/route.h"
#include "server/api/api_error.h"
#include "server/http/http.h"

namespace millrace {

struct ForwardCounts {
  std::atomic<int64_t> requests{0}, answered{0}, failed{0}, restarted{0}, cancelled{0};
  std::atomic<int64_t> prefilled{0}, unprefilled{0};  // prompts sent to prefill nodes: with a ticket, without one
};

// Members of a router that all its forwards use.
struct ForwardShared {
  boost::asio::io_context& io;
  NodeTable& nodes;
  PrefixMemory& memory;
  ForwardCounts& counts;
  const Route* route = nullptr;
  double wait_seconds = 0;
  int most_losses = 0;
};

struct ForwardedRequest {
  NodeRequest request;
  const Dialect* dialect = nullptr;
  bool generates = false;  // text, from a prompt
  std::string ping;        // bytes that keep its streams open; "": none
  std::vector<uint64_t> prefix;
  uint64_t session = 0, number = 0;
  HttpHeaders headers;  // headers of the answer, in addition to the node's
};

void begin_forward(const ForwardShared& shared, ForwardedRequest request, const Exchange& exchange);

}  // namespace millrace
