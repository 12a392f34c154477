#include "cluster/router_metrics.h"

#include <fmt/format.h>

namespace millrace {
namespace {

void add(std::string& out, const char* name, const char* type, const char* help) {
  out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

}  // namespace

std::string router_metrics(const std::vector<NodeView>& nodes, const ForwardCounts& counts) {
  std::string out;
  const std::pair<const char*, const std::atomic<int64_t>*> results[] = {
      {"answered", &counts.answered}, {"failed", &counts.failed}, {"cancelled", &counts.cancelled}};
  add(out, "millrace_router_requests_total", "counter", "Requests that were passed on, by how they ended.");
  for (const auto& [result, count] : results)
    out += fmt::format("millrace_router_requests_total{{result=\"{}\"}} {}\n", result, count->load());
  add(out, "millrace_router_restarts_total", "counter", "Answers that began again on another node.");
  out += fmt::format("millrace_router_restarts_total {}\n", counts.restarted.load());
  add(out, "millrace_router_prefills_total", "counter", "Prompts that were sent to nodes that prefill, by result.");
  out += fmt::format("millrace_router_prefills_total{{result=\"ticket\"}} {}\n", counts.prefilled.load());
  out += fmt::format("millrace_router_prefills_total{{result=\"none\"}} {}\n", counts.unprefilled.load());
  add(out, "millrace_router_node_ready", "gauge", "1 if the node receives requests.");
  for (const NodeView& node : nodes)
    out += fmt::format("millrace_router_node_ready{{node=\"{}\"}} {}\n", node.name,
                       node.state == NodeState::ready ? 1 : 0);
  add(out, "millrace_router_node_running", "gauge", "Requests of this router that run on the node.");
  for (const NodeView& node : nodes)
    out += fmt::format("millrace_router_node_running{{node=\"{}\"}} {}\n", node.name, node.open);
  add(out, "millrace_router_node_requests_total", "counter", "Requests that were sent to the node.");
  for (const NodeView& node : nodes)
    out += fmt::format("millrace_router_node_requests_total{{node=\"{}\"}} {}\n", node.name, node.requests);
  add(out, "millrace_router_node_failures_total", "counter", "Requests that the node did not complete.");
  for (const NodeView& node : nodes)
    out += fmt::format("millrace_router_node_failures_total{{node=\"{}\"}} {}\n", node.name, node.failures);
  return out;
}

}  // namespace millrace
