#include "bench_roof.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/cpu.h"
#include "base/ordered_json.h"
#include "base/thread_pool.h"
#include "bench_report.h"
#include "kernels/bandwidth.h"
#include "kernels/kernel_table.h"
#include "kv/tiers/disk_speed.h"
#include "progress.h"
#include "table_room.h"

namespace millrace {
namespace {

constexpr double kSeconds = 0.3;  // per figure
constexpr int64_t kMemoryBytes = int64_t{512} << 20;

struct Roof {
  int threads = 1;
  double read = 0, l3 = 0, l2 = 0;  // GB/s
  ComputePeaks peaks;
};

Roof measure(int threads, Isa isa) {
  ThreadPool pool(threads);
  Roof roof;
  roof.threads = pool.threads();
  roof.read = measure_read_bandwidth(pool, kMemoryBytes, kSeconds);
  roof.l3 = measure_cache_bandwidth(pool, l3_buffer_bytes(), kSeconds);
  roof.l2 = measure_cache_bandwidth(pool, l2_buffer_bytes(), kSeconds);
  roof.peaks = measure_compute_peaks(pool, isa, kSeconds);
  roof.read = std::max(roof.read, measure_read_bandwidth(pool, kMemoryBytes, kSeconds));
  return roof;
}

void print_json(const std::vector<Roof>& roofs, Isa isa) {
  nlohmann::ordered_json out = machine_facts();
  out["isa"] = isa_name(isa);
  out["machine_isa"] = isa_name(detect_isa());
  if (!amx_refusal().empty()) out["amx_refusal"] = amx_refusal();
  for (const KernelChoice& choice : kernel_choices(isa))
    out["kernels"].push_back({{"family", choice.family}, {"uses", choice.uses}, {"missing", choice.missing}});
  out["l2_buffer_bytes"] = l2_buffer_bytes();
  out["l3_buffer_bytes"] = l3_buffer_bytes();
  for (const Roof& roof : roofs)
    out["roofs"].push_back({{"threads", roof.threads},
                            {"read_gb_per_s", roof.read},
                            {"l3_gb_per_s", roof.l3},
                            {"l2_gb_per_s", roof.l2},
                            {"f32_gflop_per_s", roof.peaks.f32_gflop_per_s},
                            {"bf16_gflop_per_s", roof.peaks.bf16_gflop_per_s},
                            {"int8_gop_per_s", roof.peaks.int8_gop_per_s}});
  fmt::print("{}\n", out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

// Which version of each kernel family runs, and what a better one would need.
void print_kernels(Isa isa, const TableRoom& room) {
  TextTable table(TableLook::markdown, {{.name = "kernels", .left = true, .wraps = true},
                                        {.name = "version", .left = true},
                                        {.name = "others need", .left = true, .drops = 1, .wraps = true}});
  for (const KernelChoice& choice : kernel_choices(isa))
    table.add(
        {std::string(choice.family), std::string(choice.uses), fmt::format("{}", fmt::join(choice.missing, ", "))});
  fmt::print("\n{}", table.text(room));
  const Isa machine = detect_isa();
  if (!(isa == machine))
    fmt::print("\nMILLRACE_ISA limits the features to {}; this machine has {}.\n", isa_name(isa), isa_name(machine));
  if (!amx_refusal().empty()) fmt::print("\nAMX is not used: {}.\n", amx_refusal());
}

void print_table(const std::vector<Roof>& roofs, Isa isa, const TableRoom& room) {
  const auto machine = machine_facts();
  print_wrapped(
      fmt::format(
          "{}, {} cores, {:.1f} GiB, {}; cache bandwidth from buffers of {} KiB (L2) and {} KiB (L3) per thread",
          machine["cpu_info"].get<std::string>(), machine["cores"].get<int>(),
          machine["memory_bytes"].get<double>() / (1 << 30), isa_name(isa), l2_buffer_bytes() >> 10,
          l3_buffer_bytes() >> 10),
      room.columns);
  TextTable table(TableLook::markdown, {{.name = "threads"},
                                        {.name = "memory GB/s"},
                                        {.name = "L3 GB/s", .drops = 2},
                                        {.name = "L2 GB/s", .drops = 1},
                                        {.name = "f32 GFLOP/s", .drops = 4},
                                        {.name = "bf16 GFLOP/s", .drops = 3},
                                        {.name = "int8 GOP/s", .drops = 5}});
  const auto or_none = [](double value) { return value > 0 ? fmt::format("{:.0f}", value) : std::string("none"); };
  for (const Roof& roof : roofs)
    table.add({fmt::format("{}", roof.threads), fmt::format("{:.1f}", roof.read), fmt::format("{:.0f}", roof.l3),
               fmt::format("{:.0f}", roof.l2), fmt::format("{:.0f}", roof.peaks.f32_gflop_per_s),
               or_none(roof.peaks.bf16_gflop_per_s), or_none(roof.peaks.int8_gop_per_s)});
  fmt::print("\n{}", table.text(room));
  print_kernels(isa, room);
}

}  // namespace

Result<int> run_bench_roof(const std::vector<int>& threads, bool json, const TableRoom& room) {
  MILLRACE_TRY(const Isa isa, select_isa());
  std::vector<int> counts;
  for (int count : threads) {
    if (count > 0) {
      counts.push_back(count);
    } else {
      counts.push_back(1);
      if (available_cores() > 1) counts.push_back(available_cores());
    }
  }
  std::vector<Roof> roofs;
  {
    ProgressBar bar("measuring the roof");
    for (int count : counts) {
      roofs.push_back(measure(count, isa));
      bar.update(static_cast<double>(roofs.size()) / static_cast<double>(counts.size()));
    }
  }
  if (json)
    print_json(roofs, isa);
  else
    print_table(roofs, isa, room);
  return 0;
}

Result<int> run_bench_disk(const std::string& path, bool json) {
  nlohmann::ordered_json out = {{"file", path}, {"piece_bytes", kDiskPieceBytes}};
  const auto print_head = [] {
    fmt::print("| {:>15} | {:>6} | {:>8} | {:>6} |\n| {:->15} | {:->6} | {:-<8} | {:-<6} |\n", "reads in flight",
               "GB/s", "calls", "direct", ":", ":", "", "");
  };
  for (const int64_t depth : {1, 2, 4, 8, 16, 32}) {
    MILLRACE_TRY(const ReadSpeed speed, measure_disk_speed(path, kDiskPieceBytes, depth, 0.5));
    if (!json && depth == 1) print_head();  // not before a measurement that fails
    if (json)
      out["depths"].push_back(
          {{"depth", depth}, {"gb_per_s", speed.gb_per_s}, {"io", speed.io}, {"direct", speed.direct}});
    else
      fmt::print("| {:>15} | {:>6.2f} | {:>8} | {:>6} |\n", depth, speed.gb_per_s, speed.io,
                 speed.direct ? "yes" : "no");
  }
  if (json) fmt::print("{}\n", out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  return 0;
}

}  // namespace millrace
