// What this processor offers, and how many threads are worth starting.
#pragma once

#include <string_view>

#include "base/result.h"

namespace millrace {

// Ordered: a higher level includes the lower ones. MILLRACE_ISA stops early.
enum class Isa { ref = 0, avx2 = 1, avx512 = 2 };

std::string_view isa_name(Isa isa);

// The best level this machine runs: avx512 asks for F, BW, DQ, VL, CD, VBMI, VNNI and BF16; avx2 for
// AVX2, FMA, F16C and BMI2; the operating system must save the registers.
Isa detect_isa();

// detect_isa(), lowered by the environment variable MILLRACE_ISA=ref|avx2|avx512.
// Errors (user): an unknown name, or a level this machine lacks.
Result<Isa> select_isa();

// Processors this process may run on (affinity mask), at least 1.
int available_cores();

}  // namespace millrace
