#include "models/known_costs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/cpu.h"
#include "kv/tiers/disk_speed.h"

namespace millrace {
namespace {

// A pass of one token reads its weights from memory, and a thread has a part of the bandwidth. Many tokens take
// arithmetic in proportion. Both are about those of a core with AVX2; plans that must be right measure them.
constexpr double kSecondsPerByte = 1.0 / 8e9, kMostThreads = 4, kSecondsPerByteAndRow = 1e-11;
constexpr int64_t kDiskReads = 16;     // in flight
constexpr double kDiskSeconds = 0.1;   // of the measurement
constexpr double kUnknownDisk = 5e8;   // bytes a second
constexpr double kReadShare = 0.95;    // of the disk's rate, that layers read ahead reach while passes compute
constexpr double kExpertShare = 0.35;  // of the disk's rate, that experts reach which a pass waits for
constexpr double kWriteShare = 0.5;    // of the disk's rate

}  // namespace

std::string costs_key(int64_t packed_bytes, Isa isa, int threads) {
  return fmt::format("{} bytes, {}, {} threads", packed_bytes, isa_name(isa), threads);
}

std::string costs_path(const std::string& packed_cache) { return packed_cache + ".costs"; }

OffloadCosts known_costs(const std::string& packed_cache, const std::string& key, const std::string& model_file,
                         int threads) {
  if (auto known = read_costs(costs_path(packed_cache), key); known.ok()) return *std::move(known);
  OffloadCosts out;
  const double one = kSecondsPerByte / std::min<double>(kMostThreads, threads);
  for (const int64_t rows : {1, 4, 16, 64, 256, 512}) {
    const double many = kSecondsPerByteAndRow * static_cast<double>(rows) / threads;
    out.decode.push_back({rows, std::max(one, many)});
  }
  out.prefill = out.decode;
  const auto disk = measure_disk_speed(model_file, kDiskPieceBytes, kDiskReads, kDiskSeconds);
  const double rate = disk.ok() ? std::max(1e6, disk->gb_per_s * 1e9) : kUnknownDisk;
  out.read_bytes = kReadShare * rate;
  out.expert_bytes = kExpertShare * rate;
  out.write_bytes = kWriteShare * rate;
  return out;
}

}  // namespace millrace
