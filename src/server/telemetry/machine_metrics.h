// The operating system's figures for the process, and the machine's energy counters, as metric families.
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "server/telemetry/metrics.h"

namespace millrace {

// Joules consumed since construction, from RAPL: wrapping counters of the processor packages in microjoules. A counter
// must be read more often than it wraps, which takes some minutes; every scrape reads it.
//
//   FOLDER/intel-rapl:0/{name, energy_uj, max_energy_range_uj}      (the same names on AMD processors)
class EnergyMeter {
 public:
  struct Domain {
    std::string name;  // "package-0"
    double joules = 0;
  };

  explicit EnergyMeter(std::filesystem::path folder = "/sys/class/powercap");
  std::vector<Domain> read();  // empty: no counters, or no permission to read them

 private:
  struct Counter {
    std::filesystem::path file;
    std::string name;
    uint64_t last_uj = 0, range_uj = 0;
    double joules = 0;
  };
  std::mutex mutex_;
  std::vector<Counter> counters_;
};

// process_*, with the names of Prometheus's client libraries. Reads a few files in /proc.
void add_machine_metrics(MetricFamilies& out);

}  // namespace millrace
