#include "base/cpu.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace millrace {
namespace {

// A feature that a level may have: `name` behind a sign.
struct LevelFeature {
  Isa level;
  std::string_view name;
  Feature feature;
};

struct Level {
  std::string_view name;
  Isa isa;
};

constexpr Level kLevels[] = {{"ref", Isa::ref}, {"avx2", Isa::avx2}, {"avx512", Isa::avx512}};
constexpr LevelFeature kLevelFeatures[] = {{Isa::avx2, "vnni", Feature::avx_vnni},
                                           {Isa::avx512, "vnni", Feature::avx512_vnni},
                                           {Isa::avx512, "vbmi", Feature::avx512_vbmi},
                                           {Isa::avx512, "bf16", Feature::avx512_bf16}};

const Level& level_of(Isa isa) { return kLevels[isa.has(Feature::avx512) ? 2 : isa.has(Feature::avx2) ? 1 : 0]; }

#if defined(__x86_64__)
// __builtin_cpu_supports does not know AVX-VNNI in GCC 12 and clang 14.
bool has_avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1u << 4)) != 0;
}
#endif

void add_unique(std::vector<Isa>& all, Isa isa) {
  if (detect_isa().includes(isa) && std::find(all.begin(), all.end(), isa) == all.end()) all.push_back(isa);
}

}  // namespace

std::string isa_name(Isa isa) {
  const Level& level = level_of(isa);
  std::string name(level.name);
  for (const LevelFeature& f : kLevelFeatures) {
    if (f.level != level.isa || isa.has(f.feature) == level.isa.has(f.feature)) continue;
    name += isa.has(f.feature) ? '+' : '-';
    name += f.name;
  }
  return name;
}

std::string_view feature_name(Feature feature) {
  switch (feature) {
    case Feature::avx2: return "avx2";
    case Feature::avx_vnni: return "avx_vnni";
    case Feature::avx512: return "avx512";
    case Feature::avx512_vnni: return "avx512_vnni";
    case Feature::avx512_vbmi: return "avx512_vbmi";
    case Feature::avx512_bf16: return "avx512_bf16";
  }
  return "?";
}

Result<Isa> parse_isa(const std::string& name) {
  const size_t end = std::min(name.find_first_of("+-"), name.size());
  const Level* level = nullptr;
  for (const Level& one : kLevels)
    if (one.name == name.substr(0, end)) level = &one;
  if (!level) return Error::user(fmt::format("expected ref, avx2 or avx512, got '{}'", name));
  Isa isa = level->isa;
  for (size_t at = end; at < name.size();) {
    const size_t next = std::min(name.find_first_of("+-", at + 1), name.size());
    const std::string feature = name.substr(at + 1, next - at - 1);
    std::vector<std::string_view> known;
    bool found = false;
    for (const LevelFeature& f : kLevelFeatures) {
      if (f.level != level->isa) continue;
      known.push_back(f.name);
      if (f.name != feature) continue;
      isa = name[at] == '+' ? isa.with(f.feature) : isa.without(f.feature);
      found = true;
    }
    if (!found)
      return Error::user(fmt::format("{}: no feature '{}'; known: {}", level->name, feature,
                                     known.empty() ? std::string("none") : fmt::format("{}", fmt::join(known, ", "))));
    at = next;
  }
  return isa;
}

Isa detect_isa() {
  Isa isa;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
        __builtin_cpu_supports("bmi2")))
    return isa;
  isa = Isa::avx2;
  if (has_avx_vnni()) isa = isa.with(Feature::avx_vnni);
  if (!(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd")))
    return isa;
  isa = isa.with(Feature::avx512);
  if (__builtin_cpu_supports("avx512vnni")) isa = isa.with(Feature::avx512_vnni);
  if (__builtin_cpu_supports("avx512vbmi")) isa = isa.with(Feature::avx512_vbmi);
  if (__builtin_cpu_supports("avx512bf16")) isa = isa.with(Feature::avx512_bf16);
#endif
  return isa;
}

Result<Isa> select_isa() {
  const Isa best = detect_isa();
  const char* wanted = std::getenv("MILLRACE_ISA");
  if (!wanted || !*wanted) return best;
  auto isa = parse_isa(wanted);
  if (!isa.ok()) return Error::user("MILLRACE_ISA: " + isa.error().message);
  if (!best.includes(*isa))
    return Error::user(
        fmt::format("MILLRACE_ISA: this machine does not support {}; its best is {}", wanted, isa_name(best)));
  return *isa;
}

std::vector<Isa> isa_levels() {
  std::vector<Isa> all;
  for (const Isa isa : {Isa::ref, Isa::avx2, detect_isa()}) add_unique(all, isa);
  return all;
}

std::vector<Isa> isa_variants() {
  std::vector<Isa> all;
  add_unique(all, Isa::ref);
  add_unique(all, Isa::avx2);
  add_unique(all, Isa::avx2.with(Feature::avx_vnni));
  add_unique(all, Isa::avx2.with(Feature::avx512));
  add_unique(all, Isa::avx512.without(Feature::avx512_bf16));
  add_unique(all, detect_isa());
  return all;
}

int available_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  int count = CPU_COUNT(&set);
  return count < 1 ? 1 : count;
}

}  // namespace millrace
