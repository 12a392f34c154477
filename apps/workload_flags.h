// Flags that say which load: `millrace trace`, `replay`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "workload/request.h"

namespace millrace {

struct WorkloadFlags {
  std::string path, format, arrivals, tokenizer;
  int64_t limit = 0, max_prompt = 0, max_output = 0;
  double scale = 1, rate = 0, burstiness = 1;
  uint64_t seed = 0;

  // `path_flag` is "trace" for a positional argument or "--trace".
  void add_to(CLI::App* command, const std::string& path_flag);
  // The load, in order of arrival, cut and stretched as the flags say.
  Result<std::vector<WorkloadRequest>> load() const;
};

}  // namespace millrace
