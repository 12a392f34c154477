# MILLRACE_KERNELS=native leaves out the slow-to-compile x86 kernels that this processor never runs: those whose features
# it lacks, and those that kVersions in src/kernels/kernel_table.cc says are superseded by its features. `./run` builds
# that way; the default, all, is for packages, tests and builds that move to another machine.
#
# A left-out file is replaced by an empty function of the same name (generated/left_out_kernels.cc), so that the table of
# kernels needs no condition. select_isa() refuses sets of features that such a build does not have in full.
set(MILLRACE_KERNELS all CACHE STRING "x86 kernels to build: all, or native (this processor's and the portable ones)")
set_property(CACHE MILLRACE_KERNELS PROPERTY STRINGS all native)
if(NOT MILLRACE_KERNELS MATCHES "^(all|native)$")
  message(FATAL_ERROR "MILLRACE_KERNELS is all or native, not '${MILLRACE_KERNELS}'")
endif()

# Features of src/base/cpu.h, their bits there, and the flags of /proc/cpuinfo that they need.
set(MILLRACE_CPU_FEATURES avx2 avx_vnni avx512 avx512_vnni avx512_vbmi avx512_bf16 amx_int8 amx_bf16)
set(MILLRACE_CPU_BIT_avx2 1)
set(MILLRACE_CPU_BIT_avx_vnni 2)
set(MILLRACE_CPU_BIT_avx512 4)
set(MILLRACE_CPU_BIT_avx512_vnni 8)
set(MILLRACE_CPU_BIT_avx512_vbmi 16)
set(MILLRACE_CPU_BIT_avx512_bf16 32)
set(MILLRACE_CPU_BIT_amx_int8 64)
set(MILLRACE_CPU_BIT_amx_bf16 128)
set(MILLRACE_CPU_FLAGS_avx2 avx2 fma f16c bmi2)
set(MILLRACE_CPU_FLAGS_avx512 avx512f avx512bw avx512dq avx512vl avx512cd)
set(MILLRACE_CPU_FLAGS_amx_int8 amx_tile amx_int8)
set(MILLRACE_CPU_FLAGS_amx_bf16 amx_tile amx_bf16)
set(MILLRACE_CPU_FLAGS_avx512_vbmi avx512vbmi)

# Name of each file that may be left out, the features that it needs, and those with which it is superseded ("-": none).
set(MILLRACE_OPTIONAL_KERNELS
  "matmul_quant_avx2|avx2|avx512 avx512_vnni"
  "matmul_quant_avxvnni|avx_vnni|avx512 avx512_vnni"
  "matmul_quant_avxvnniint8|never|-"  # only runs if MILLRACE_ISA names it
  "matmul_quant_avx512vnni|avx512_vnni|-"
  "matmul_quant_amxint8|amx_int8|-"
  "matmul_quant_amxbf16|amx_bf16|-"
  "matmul_bf16_amxbf16|amx_bf16|-"
  "matmul_bf16_avx512bf16|avx512_bf16|-"
  "matmul_f8_avx512vbmi|avx512_vbmi|-"
  "matmul_float_avx512|avx512|-"
  "attention_avx2|avx2|avx512"
  "attention_avx512|avx512|-"
  "attention_avx512bf16|avx512_bf16|-"
  "attention_levels_avx512vnnibf16|avx512_vnni avx512_bf16|-"
  "attention_rows_avx512vnnibf16|avx512_vnni avx512_bf16|-"
  "attention_amxbf16|amx_bf16|-")

set(MILLRACE_NATIVE OFF)
if(MILLRACE_KERNELS STREQUAL native AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$" AND NOT CMAKE_CROSSCOMPILING
   AND EXISTS /proc/cpuinfo)
  set(MILLRACE_NATIVE ON)
  file(STRINGS /proc/cpuinfo flags LIMIT_COUNT 1 REGEX "^flags")
  set(MILLRACE_NATIVE_HAS "")
  set(MILLRACE_NATIVE_BITS 0)
  foreach(feature IN LISTS MILLRACE_CPU_FEATURES)
    set(needed ${MILLRACE_CPU_FLAGS_${feature}})
    if(NOT needed)
      set(needed ${feature})
    endif()
    set(has ON)
    foreach(flag IN LISTS needed)
      if(NOT "${flags} " MATCHES " ${flag} ")
        set(has OFF)
      endif()
    endforeach()
    if(has)
      list(APPEND MILLRACE_NATIVE_HAS ${feature})
      math(EXPR MILLRACE_NATIVE_BITS "${MILLRACE_NATIVE_BITS} | ${MILLRACE_CPU_BIT_${feature}}")
    endif()
  endforeach()
endif()

function(millrace_has_all variable features)
  set(${variable} ON PARENT_SCOPE)
  string(REPLACE " " ";" features "${features}")
  foreach(feature IN LISTS features)
    if(NOT feature IN_LIST MILLRACE_NATIVE_HAS)
      set(${variable} OFF PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# Removes the kernels that this processor does not run from the list of sources named by `variable`, and adds the file
# with their empty functions.
function(millrace_native_kernels variable)
  set(kept ${${variable}})
  if(NOT MILLRACE_NATIVE OR NOT kept MATCHES "/kernels/x86/")
    return()
  endif()
  set(functions "")
  foreach(row IN LISTS MILLRACE_OPTIONAL_KERNELS)
    string(REPLACE "|" ";" row "${row}")
    list(GET row 0 name)
    list(GET row 1 needs)
    list(GET row 2 superseded)
    millrace_has_all(runs "${needs}")
    millrace_has_all(replaced "${superseded}")
    if(NOT runs OR replaced)
      list(FILTER kept EXCLUDE REGEX "/kernels/x86/${name}[.]cc$")
      string(APPEND functions "void add_${name}(KernelTable&) {}\n")
      if(name STREQUAL matmul_quant_avx512vnni)
        string(APPEND functions "QuantRun quant_run_avx512vnni(int) { return nullptr; }\n"
          "QuantRun table16_run_avx512vnni() { return nullptr; }\nQuantRun codewords_run_avx512vnni() { return nullptr; }\n")
      endif()
    endif()
  endforeach()
  set(file ${CMAKE_BINARY_DIR}/generated/left_out_kernels.cc)
  file(CONFIGURE OUTPUT ${file} CONTENT "// Kernels that the processor of this build does not run.
#include \"kernels/families.h\"
#include \"kernels/ops.h\"
namespace millrace {
${functions}}  // namespace millrace
")
  list(APPEND kept ${file})
  set(${variable} ${kept} PARENT_SCOPE)
endfunction()
