// The metrics of a router, in Prometheus' text format.
#pragma once

#include <string>
#include <vector>

#include "cluster/forward.h"

namespace millrace {

std::string router_metrics(const std::vector<NodeView>& nodes, const ForwardCounts& counts);

}  // namespace millrace
