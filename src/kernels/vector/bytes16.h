// Bytes16 for the instruction set that every processor of this build has.
#pragma once

#if defined(__aarch64__)
#include "kernels/arm/bytes16_neon.h"
#else
#include "kernels/x86/bytes16_sse2.h"
#endif
