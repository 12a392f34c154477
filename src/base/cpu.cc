#include "base/cpu.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "base/system.h"

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

constexpr Level kLevels[] = {
    {"ref", Isa::ref}, {"avx2", Isa::avx2}, {"avx512", Isa::avx512}, {"amx", Isa::amx}, {"neon", Isa::neon}};
constexpr LevelFeature kLevelFeatures[] = {
    {Isa::avx2, "vnni", Feature::avx_vnni},      {Isa::avx2, "int8", Feature::avx_vnni_int8},
    {Isa::avx512, "vnni", Feature::avx512_vnni}, {Isa::avx512, "vbmi", Feature::avx512_vbmi},
    {Isa::avx512, "bf16", Feature::avx512_bf16}, {Isa::amx, "int8", Feature::amx_int8},
    {Isa::amx, "bf16", Feature::amx_bf16},       {Isa::neon, "dotprod", Feature::dotprod},
    {Isa::neon, "i8mm", Feature::i8mm},          {Isa::neon, "bf16", Feature::arm_bf16}};

const Level& level_of(Isa isa) {
  if (isa.has(Feature::neon)) return kLevels[4];
  if (isa.has(Feature::amx_int8) || isa.has(Feature::amx_bf16)) return kLevels[3];
  return kLevels[isa.has(Feature::avx512) ? 2 : isa.has(Feature::avx2) ? 1 : 0];
}

#if defined(__x86_64__)
// __builtin_cpu_supports does not know AVX-VNNI and what followed it in GCC 12 and clang 14.
Isa find_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  Isa found;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) == 0 || (a & (1u << 4)) == 0) return found;
  found = found.with(Feature::avx_vnni);
  return d & (1u << 4) ? found.with(Feature::avx_vnni_int8) : found;
}

// ---- AMX: Intel's manual volume 1, chapter 18; Linux's Documentation/arch/x86/xstate.rst -----------------
struct Tiles {
  Isa features;
  std::string refusal;
};

// `isa`: the other features of this machine.
Tiles find_tiles(Isa isa) {
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25;
  constexpr unsigned kEnabled = 3u << 17;  // of XCR0: configuration and data
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTile) == 0 || (d & (kInt8 | kBf16)) == 0) return {};
  const unsigned found = d;
  if (!isa.includes(Isa::avx512))
    return {{}, fmt::format("the kernels that use AMX need all of avx512, and this machine has {}", isa_name(isa))};
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & kEnabled) != kEnabled)
    return {{}, "the operating system does not save AMX's registers (Linux does since 5.16)"};
  if (std::string refusal = ask_for_tiles(); !refusal.empty()) return {{}, std::move(refusal)};
  Isa features;
  if (found & kInt8) features = features.with(Feature::amx_int8);
  if (found & kBf16) features = features.with(Feature::amx_bf16);
  return {features, {}};
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
    case Feature::amx_int8: return "amx_int8";
    case Feature::amx_bf16: return "amx_bf16";
    case Feature::neon: return "neon";
    case Feature::dotprod: return "dotprod";
    case Feature::i8mm: return "i8mm";
    case Feature::arm_bf16: return "arm_bf16";
    case Feature::avx_vnni_int8: return "avx_vnni_int8";
  }
  return "?";
}

Result<Isa> parse_isa(const std::string& name) {
  const size_t end = std::min(name.find_first_of("+-"), name.size());
  const Level* level = nullptr;
  for (const Level& one : kLevels)
    if (one.name == name.substr(0, end)) level = &one;
  if (!level) return Error::user(fmt::format("expected ref, avx2, avx512, amx or neon, got '{}'", name));
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

namespace {

Isa detect_vectors() {
  Isa isa;
#if defined(__aarch64__)
  isa = Isa::neon;
  const ArmFeatures found = arm_features();
  if (found.dotprod) isa = isa.with(Feature::dotprod);
  if (found.i8mm) isa = isa.with(Feature::i8mm);
  if (found.bf16) isa = isa.with(Feature::arm_bf16);
#endif
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
        __builtin_cpu_supports("bmi2")))
    return isa;
  isa = Isa::avx2;
  isa = Isa(isa.bits() | find_vnni().bits());
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

// Features whose kernels have run on no processor yet.
constexpr Isa kOnlyIfNamed = Isa().with(Feature::avx_vnni_int8);

// Once: permission is of the process, and tables are made in many places.
struct Machine {
  Isa isa = detect_vectors();
  std::string amx_refusal;

  Machine() {
#if defined(__x86_64__)
    Tiles tiles = find_tiles(isa);
    isa = Isa(isa.bits() | tiles.features.bits());
    amx_refusal = std::move(tiles.refusal);
#endif
  }
};

const Machine& machine() {
  static const Machine found;
  return found;
}

// Features of the processor that this program was built for, if it has only the kernels that this processor runs
// (MILLRACE_KERNELS=native). AMX may be absent at run time without another build: its kernels replace no others.
#if defined(MILLRACE_NATIVE_FEATURES)
constexpr Isa kBuiltFor(MILLRACE_NATIVE_FEATURES);
constexpr Isa kTiles = Isa().with(Feature::amx_int8).with(Feature::amx_bf16);

Result<Isa> check_built(Isa isa) {
  if (isa == Isa::ref || ((isa.bits() ^ kBuiltFor.bits()) & ~kTiles.bits()) == 0) return isa;
  return Error::unsupported(fmt::format(
      "instruction set {}: this build has the kernels of {} and ref only; build with -DMILLRACE_KERNELS=all for others",
      isa_name(isa), isa_name(kBuiltFor)));
}
#else
Result<Isa> check_built(Isa isa) { return isa; }
#endif

}  // namespace

Isa detect_isa() { return Isa(machine().isa.bits() & ~kOnlyIfNamed.bits()); }

const std::string& amx_refusal() { return machine().amx_refusal; }

Result<Isa> select_isa() {
  const Isa best = detect_isa();
  const char* wanted = std::getenv("MILLRACE_ISA");
  if (!wanted || !*wanted) return check_built(best);
  auto isa = parse_isa(wanted);
  if (!isa.ok()) return Error::user("MILLRACE_ISA: " + isa.error().message);
  if (!machine().isa.includes(*isa)) {
    const bool tiles = isa->has(Feature::amx_int8) || isa->has(Feature::amx_bf16);
    const std::string why = tiles && !amx_refusal().empty() ? "; no AMX: " + amx_refusal() : "";
    return Error::user(
        fmt::format("MILLRACE_ISA: this machine does not support {}; its best is {}{}", wanted, isa_name(best), why));
  }
  return check_built(*isa);
}

std::vector<Isa> isa_levels() {
  std::vector<Isa> all;
  for (const Isa isa : {Isa::ref, Isa::avx2, Isa::neon, detect_isa()}) add_unique(all, isa);
  return all;
}

std::vector<Isa> isa_variants() {
  std::vector<Isa> all;
  add_unique(all, Isa::ref);
  add_unique(all, Isa::avx2);
  add_unique(all, Isa::avx2.with(Feature::avx_vnni));
  add_unique(all, Isa::avx2.with(Feature::avx512));
  add_unique(all, Isa::avx512.without(Feature::avx512_bf16));
  add_unique(all, Isa::neon);
  add_unique(all, Isa::neon.with(Feature::dotprod));
  if (detect_isa().has(Feature::amx_int8) || detect_isa().has(Feature::amx_bf16)) add_unique(all, Isa::avx512);
  add_unique(all, detect_isa());
  return all;
}

int available_cores() { return std::max(1, usable_processors()); }

}  // namespace millrace
