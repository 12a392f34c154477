// See vnni256_avx512vnni.cc.
#pragma once

#include "kernels/kernel_table.h"

namespace millrace::testing {

// They need Feature::avx512_vnni.
void add_vnni256(KernelTable& table);
void add_vnni256_int8(KernelTable& table);  // with the signed product of bytes emulated

}  // namespace millrace::testing
