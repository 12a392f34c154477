// Which attention kernels multiply the levels of rows as bytes (kernels/x86/attention_byte_rows.h): queries, keys and
// values are not rounded to bf16 there, but weights are.
#pragma once

#include <string_view>

#include "formats/format.h"
#include "kernels/kernel_table.h"

namespace millrace::testing {

inline bool multiplies_bytes(const KernelTable& table, const Format& rows) {
  const std::string_view name = rows.name;
  if (!table.isa.has(Feature::avx512_vnni) || !table.isa.has(Feature::avx512_bf16)) return false;
  if (name == "q8_0") return !table.isa.has(Feature::amx_bf16);
  return name == "q4_0" || name == "q4_1" || name == "q5_0";
}

}  // namespace millrace::testing
