// See vnni256_avx512vnni.cc.
#pragma once

#include "kernels/kernel_table.h"

namespace millrace::testing {

void add_vnni256(KernelTable& table);  // needs Feature::avx512_vnni

}  // namespace millrace::testing
