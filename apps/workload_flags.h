// The flags that select a load, for `millrace trace`, `replay` and `simulate`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "workload/metrics.h"
#include "workload/request.h"

namespace millrace {

struct WorkloadFlags {
  std::string path, format, arrivals, tokenizer;
  int64_t limit = 0, max_prompt = 0, max_output = 0;
  double scale = 1, rate = 0, burstiness = 1;
  uint64_t seed = 0;

  // `path_flag` is "trace" for a positional argument or "--trace".
  void add_to(CLI::App* command, const std::string& path_flag);
  // Loads the workload and applies the flags; sorted by arrival.
  Result<std::vector<WorkloadRequest>> load() const;
};

// --good-ttft, --good-tpot, --good-e2e: a request is good if it met each of these limits that was set.
void add_goodput_limits(CLI::App* command, GoodputLimits& limits);

}  // namespace millrace
