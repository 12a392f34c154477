# Which x86 kernels are built without sanitizers: unrolled loops over vectors would be half of the compile time.

# As /proc/cpuinfo names what each of MILLRACE_ISA_FILES needs beyond AVX2 and AVX-512.
set(MILLRACE_CPUINFO_avx2 avx2)
set(MILLRACE_CPUINFO_avxvnni avx_vnni)
set(MILLRACE_CPUINFO_avxvnniint8 avx_vnni_int8)
set(MILLRACE_CPUINFO_avx512 avx512f)
set(MILLRACE_CPUINFO_avx512vnni avx512_vnni)
set(MILLRACE_CPUINFO_avx512vbmi avx512vbmi)
set(MILLRACE_CPUINFO_avx512bf16 avx512_bf16)
set(MILLRACE_CPUINFO_avx512vnnibf16 avx512_vnni avx512_bf16)
set(MILLRACE_CPUINFO_amxint8 amx_int8)
set(MILLRACE_CPUINFO_amxbf16 amx_bf16)

# They and what this processor lacks the features for, which never runs, can be taken from another build: the objects of
# the release build serve both sanitizers, whose compilers otherwise compile them once more each.
set(MILLRACE_KERNELS_OF "" CACHE PATH "With sanitizers: a build folder whose x86 kernels are linked where they need no sanitizer")

# Sources of a module: those among them that are such kernels get the flags, or become objects of MILLRACE_KERNELS_OF.
function(millrace_sanitized_kernels variable)
  if(NOT MILLRACE_SANITIZE)
    return()
  endif()
  # Their memory is guarded by tests/conformance/guarded_new.cc, and threads share the same in all kernels, the portable
  # ones among them.
  set(plain ${${variable}})
  list(FILTER plain INCLUDE REGEX "/x86/(matmul|attention)_.*(avx|amx)")
  set_property(SOURCE ${plain} APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=all)
  # What this processor lacks the features for never runs.
  file(STRINGS /proc/cpuinfo processor LIMIT_COUNT 1 REGEX "^flags")
  foreach(isa IN LISTS MILLRACE_ISA_FILES)
    foreach(feature IN LISTS MILLRACE_CPUINFO_${isa})
      if(NOT "${processor} " MATCHES " ${feature} ")
        set(never ${${variable}})
        list(FILTER never INCLUDE REGEX "_${isa}\\.cc$")
        set_property(SOURCE ${never} APPEND PROPERTY COMPILE_OPTIONS -O0 -fno-sanitize=all)
        list(APPEND plain ${never})
      endif()
    endforeach()
  endforeach()
  if(MILLRACE_KERNELS_OF AND plain)
    list(REMOVE_ITEM ${variable} ${plain})
    list(REMOVE_DUPLICATES plain)
    list(TRANSFORM plain REPLACE "^${CMAKE_SOURCE_DIR}/src/(.*)" "${MILLRACE_KERNELS_OF}/src/CMakeFiles/millrace_kernels.dir/\\1.o")
    set(${variable} ${${variable}} ${plain} PARENT_SCOPE)
  endif()
endfunction()
