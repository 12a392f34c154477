#include "base/cpu.h"

#include <fmt/format.h>
#include <sched.h>

#include <cstdlib>
#include <string>

namespace millrace {

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::ref: return "ref";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
  }
  return "?";
}

Isa detect_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
              __builtin_cpu_supports("bmi2");
  bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512vbmi") &&
                __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
  if (avx2 && avx512) return Isa::avx512;
  if (avx2) return Isa::avx2;
#endif
  return Isa::ref;
}

Result<Isa> select_isa() {
  Isa best = detect_isa();
  const char* wanted = std::getenv("MILLRACE_ISA");
  if (!wanted || !*wanted) return best;
  for (Isa isa : {Isa::ref, Isa::avx2, Isa::avx512}) {
    if (isa_name(isa) != wanted) continue;
    if (isa > best) {
      return Error::user(
          fmt::format("MILLRACE_ISA: this machine does not support {}; its best is {}", wanted, isa_name(best)));
    }
    return isa;
  }
  return Error::user(fmt::format("MILLRACE_ISA: expected ref, avx2 or avx512, got '{}'", wanted));
}

int available_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  int count = CPU_COUNT(&set);
  return count < 1 ? 1 : count;
}

}  // namespace millrace
