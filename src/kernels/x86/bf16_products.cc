#include "kernels/x86/bf16_products.h"

#if defined(__x86_64__)
namespace millrace {
namespace {

bool is_intel() {
  __builtin_cpu_init();
  return __builtin_cpu_is("intel");
}

bool& by_fma() {
  static bool chosen = is_intel();
  return chosen;
}

}  // namespace

bool bf16_by_fma() { return by_fma(); }

void set_bf16_by_fma(bool chosen) { by_fma() = chosen; }

}  // namespace millrace
#endif
