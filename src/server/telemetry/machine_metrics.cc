#include "server/telemetry/machine_metrics.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>

#include "base/system.h"
#include "server/telemetry/metric_family.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using prometheus::MetricType;

bool read_number(const fs::path& path, uint64_t* value) {
  std::ifstream file(path);
  return static_cast<bool>(file >> *value);
}

}  // namespace

EnergyMeter::EnergyMeter(fs::path folder) {
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    const std::string name = at->path().filename();
    const size_t colon = name.find(':');  // "intel-rapl:0"; a second colon marks a subdomain
    if (colon == std::string::npos || name.find(':', colon + 1) != std::string::npos ||
        name.find("rapl") == std::string::npos || name.find("mmio") != std::string::npos)
      continue;
    Counter counter{.file = at->path() / "energy_uj", .name = name};
    if (!read_number(counter.file, &counter.last_uj)) continue;
    read_number(at->path() / "max_energy_range_uj", &counter.range_uj);
    if (std::ifstream file(at->path() / "name"); std::getline(file, counter.name))
      counter.name = counter.name.substr(0, 64);
    for (const Counter& other : counters_)
      if (other.name == counter.name) counter.name = name;
    counters_.push_back(std::move(counter));
  }
  std::ranges::sort(counters_, {}, &Counter::name);
}

std::vector<EnergyMeter::Domain> EnergyMeter::read() {
  std::lock_guard lock(mutex_);
  std::vector<Domain> out;
  for (Counter& counter : counters_) {
    uint64_t now = 0;
    if (!read_number(counter.file, &now)) continue;
    uint64_t used = now - counter.last_uj;
    if (now < counter.last_uj)
      used = counter.range_uj > counter.last_uj ? counter.range_uj - counter.last_uj + now : now;
    counter.last_uj = now;
    counter.joules += static_cast<double>(used) * 1e-6;
    out.push_back({counter.name, counter.joules});
  }
  return out;
}

void add_machine_metrics(MetricFamilies& out) {
  const auto add = [&](const char* name, const char* help, MetricType type, double value) {
    out.push_back(FamilyBuilder(name, help, type).add(value).take());
  };
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  add("process_cpu_seconds_total", "User and system time of the process", MetricType::Counter,
      seconds(usage.ru_utime) + seconds(usage.ru_stime));
  ProcessFigures figures;
  if (read_process_figures(figures)) {
    add("process_start_time_seconds", "When the process started, since the epoch", MetricType::Gauge,
        figures.start_seconds);
    add("process_virtual_memory_bytes", "Virtual memory of the process", MetricType::Gauge,
        static_cast<double>(figures.virtual_bytes));
    add("process_resident_memory_bytes", "Resident memory of the process", MetricType::Gauge,
        static_cast<double>(figures.resident_bytes));
  }
  if (figures.open_files >= 0)
    add("process_open_fds", "Open file descriptors", MetricType::Gauge, static_cast<double>(figures.open_files));
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    add("process_max_fds", "Maximum number of open file descriptors", MetricType::Gauge,
        static_cast<double>(limit.rlim_cur));
}

}  // namespace millrace
