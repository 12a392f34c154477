// Instruction sets and number of cores of this processor.
#pragma once

#include <string_view>

#include "base/result.h"

namespace millrace {

// Ordered: a higher level includes the lower ones. MILLRACE_ISA selects a lower level.
enum class Isa { ref = 0, avx2 = 1, avx512 = 2 };

std::string_view isa_name(Isa isa);

// The highest level this machine supports. avx512 requires F, BW, DQ, VL, CD, VBMI, VNNI and BF16; avx2 requires AVX2,
// FMA, F16C and BMI2; the operating system must save the registers.
Isa detect_isa();

// detect_isa(), lowered by the environment variable MILLRACE_ISA=ref|avx2|avx512.
// Errors (user): an unknown name, or a level this machine lacks.
Result<Isa> select_isa();

// Processors this process may run on (affinity mask), at least 1.
int available_cores();

}  // namespace millrace
