#include "server/telemetry/machine_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "server/telemetry/metric_family.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using prometheus::MetricType;

bool read_number(const fs::path& path, uint64_t* value) {
  std::ifstream file(path);
  return static_cast<bool>(file >> *value);
}

// Boot time of the machine in seconds since the epoch.
double boot_seconds() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("btime ")) return std::strtod(line.c_str() + 6, nullptr);
  return 0;
}

// The fields of /proc/self/stat after the name in parentheses; the first is the state, field 3 in proc(5).
std::vector<std::string> stat_fields() {
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t end = text.rfind(')');
  std::vector<std::string> out;
  if (end == std::string::npos) return out;
  std::istringstream words(text.substr(end + 1));
  for (std::string word; words >> word;) out.push_back(word);
  return out;
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
  if (const auto fields = stat_fields(); fields.size() > 21) {
    const auto field = [&](size_t number) { return std::strtod(fields[number - 3].c_str(), nullptr); };
    add("process_start_time_seconds", "When the process started, since the epoch", MetricType::Gauge,
        boot_seconds() + field(22) / static_cast<double>(sysconf(_SC_CLK_TCK)));
    add("process_virtual_memory_bytes", "Virtual memory of the process", MetricType::Gauge, field(23));
    add("process_resident_memory_bytes", "Resident memory of the process", MetricType::Gauge,
        field(24) * static_cast<double>(sysconf(_SC_PAGESIZE)));
  }
  std::error_code failed;
  int64_t open = 0;
  for (fs::directory_iterator at("/proc/self/fd", failed), end; !failed && at != end; at.increment(failed)) ++open;
  if (!failed)
    // Without the directory iterator's own descriptor.
    add("process_open_fds", "Open file descriptors", MetricType::Gauge, static_cast<double>(open - 1));
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    add("process_max_fds", "Maximum number of open file descriptors", MetricType::Gauge,
        static_cast<double>(limit.rlim_cur));
}

}  // namespace millrace
