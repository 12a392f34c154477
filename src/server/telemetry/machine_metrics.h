// The process as its system sees it, and the energy that its machine counts, as metric families.
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "server/telemetry/metrics.h"

namespace millrace {

// Joules since this was made, by RAPL: counters of the processor's packages in microjoules that wrap. A counter has to
// be read more often than it wraps, which is some minutes; a scrape does that.
//
//   FOLDER/intel-rapl:0/{name, energy_uj, max_energy_range_uj}      (AMD's processors have them under the same names)
class EnergyMeter {
 public:
  struct Domain {
    std::string name;  // "package-0"
    double joules = 0;
  };

  explicit EnergyMeter(std::filesystem::path folder = "/sys/class/powercap");
  std::vector<Domain> read();  // empty: there are none, or they may not be read

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

// process_* as Prometheus's own clients name them. Reads a few files of /proc.
void add_machine_metrics(MetricFamilies& out);

}  // namespace millrace
