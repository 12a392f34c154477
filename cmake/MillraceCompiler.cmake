# Compiler flags, sanitizers and the third-party packages every module may use.

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(LibLZMA REQUIRED)
find_package(Boost 1.81 REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
if(CMAKE_SYSTEM_NAME STREQUAL Linux)
  pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing)
endif()
pkg_check_modules(PANGOCAIRO REQUIRED pangocairo)
pkg_check_modules(SQLITE REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(GUMBO REQUIRED IMPORTED_TARGET gumbo)
pkg_check_modules(EDIT REQUIRED IMPORTED_TARGET libedit)
pkg_check_modules(PROMETHEUS REQUIRED IMPORTED_TARGET prometheus-cpp-core)
pkg_check_modules(UTF8PROC IMPORTED_TARGET libutf8proc)
if(NOT UTF8PROC_FOUND)  # Debian's package ships no .pc file in some releases
  find_library(UTF8PROC_LIBRARY utf8proc REQUIRED)
  add_library(PkgConfig::UTF8PROC INTERFACE IMPORTED)
  target_link_libraries(PkgConfig::UTF8PROC INTERFACE ${UTF8PROC_LIBRARY})
endif()
# Not by its .pc file, whose flags would be those of every module above `kv`.
find_path(HIREDIS_INCLUDE hiredis/hiredis.h REQUIRED)
find_library(HIREDIS_LIBRARY hiredis REQUIRED)
add_library(PkgConfig::HIREDIS INTERFACE IMPORTED)
target_link_libraries(PkgConfig::HIREDIS INTERFACE ${HIREDIS_LIBRARY})
set(MILLRACE_TEXT_LIBS PkgConfig::PCRE2 PkgConfig::UTF8PROC nlohmann_json::nlohmann_json)
if(MILLRACE_TESTS)
  find_package(GTest REQUIRED)
endif()
if(MILLRACE_BENCH)
  find_package(benchmark REQUIRED)
endif()
if(MILLRACE_TRAIN)
  find_package(Torch REQUIRED)
  set(MILLRACE_TRAIN_LIBS ${TORCH_LIBRARIES} LibLZMA::LibLZMA)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Cache hits must not depend on the path of the checkout, whichever program starts the build.
  set(MILLRACE_CCACHE env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1)
  set(CMAKE_C_COMPILER_LAUNCHER ${MILLRACE_CCACHE} ${CCACHE_PROGRAM})
  # Without this ccache does not cache files that use precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${MILLRACE_CCACHE} CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()

# Floating-point results are part of the contract (same request, same bits): no implicit contraction and no
# reassociation. Kernels that need a fused multiply-add call fma explicitly.
add_library(millrace_flags INTERFACE)
target_compile_options(millrace_flags INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-unused-parameter -Wno-missing-field-initializers -ffp-contract=off
  -fno-math-errno $<$<CXX_COMPILER_ID:GNU>:-Wno-psabi -Wno-restrict>)
# GCC collects its garbage less often: a tenth of its time, for a third more memory, 1.2 GB in the largest files.
target_compile_options(millrace_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=524288>)
if(MILLRACE_SANITIZE)
  target_compile_options(millrace_flags INTERFACE -fsanitize=${MILLRACE_SANITIZE}
                         -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(MILLRACE_SANITIZE MATCHES "address,undefined")
    # An access to a null pointer faults without a check; checks of it and of virtual tables are a fifth of the compile
    # time. So are checks of objects' sizes, which hardly survive optimization and find what the address sanitizer finds.
    # Tests' own code is not checked for undefined behaviour, which would be two fifths of its compile time.
    target_compile_options(millrace_flags INTERFACE -fno-sanitize=null,vptr,object-size
                           $<$<BOOL:$<TARGET_PROPERTY:MILLRACE_TEST_CODE>>:-fno-sanitize=undefined>)
  endif()
  target_link_options(millrace_flags INTERFACE -fsanitize=${MILLRACE_SANITIZE})
  target_compile_definitions(millrace_flags INTERFACE MILLRACE_SANITIZED)  # for tests that limit or count memory
endif()
# Of the modules that compute little: a tenth less to compile, and a third less without optimization, which is enough for
# the tests under a sanitizer and on a simulated processor.
set(MILLRACE_FLAGS_quick $<$<CONFIG:Release>:-O2>)
if(MILLRACE_SANITIZE OR MILLRACE_UNOPTIMIZED)
  set(MILLRACE_FLAGS_quick -O0)
endif()
set(MILLRACE_FLAGS_module ${MILLRACE_FLAGS_quick})
if(MILLRACE_FUZZ)
  list(APPEND MILLRACE_FLAGS_module -fsanitize=fuzzer-no-link)
endif()

# Folders of sources for processors other than that of this build.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(MILLRACE_OTHER_PROCESSORS "/kernels/x86/")
else()
  set(MILLRACE_OTHER_PROCESSORS "/kernels/arm/")
endif()

# Flags by file name: kernels/x86/NAME_avx2.cc, kernels/arm/NAME_i8mm.cc. Everything else is compiled for the baseline
# instruction set (DESIGN 5.7). The features are those of base/cpu.h.
set(MILLRACE_ISA_FILES avx2 avxvnni avxvnniint8 avx512 avx512vnni avx512vbmi avx512bf16 avx512vnnibf16 amxint8 amxbf16 dotprod i8mm armbf16)
set(MILLRACE_FLAGS_avx2 -mavx2;-mfma;-mf16c;-mbmi2)
set(MILLRACE_FLAGS_avxvnni ${MILLRACE_FLAGS_avx2};-mavxvnni)
set(MILLRACE_FLAGS_avxvnniint8 ${MILLRACE_FLAGS_avxvnni})
include(CheckCXXSourceCompiles)
check_cxx_source_compiles("int main() { asm volatile(\"vpdpbssd %ymm0, %ymm0, %ymm0\"); }" MILLRACE_VNNI_INT8)
if(MILLRACE_VNNI_INT8)  # only of the files that ask, so that the others' options stay as they are
  list(APPEND MILLRACE_FLAGS_avxvnniint8 -DMILLRACE_VNNI_INT8)
  set_source_files_properties(src/kernels/kernel_table.cc PROPERTIES COMPILE_DEFINITIONS MILLRACE_VNNI_INT8)
endif()
set(MILLRACE_FLAGS_avx512
    ${MILLRACE_FLAGS_avx2};-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512cd;-mprefer-vector-width=512)
set(MILLRACE_FLAGS_avx512vnni ${MILLRACE_FLAGS_avx512};-mavx512vnni)
set(MILLRACE_FLAGS_avx512vbmi ${MILLRACE_FLAGS_avx512};-mavx512vbmi)
set(MILLRACE_FLAGS_avx512bf16 ${MILLRACE_FLAGS_avx512};-mavx512bf16)
set(MILLRACE_FLAGS_avx512vnnibf16 ${MILLRACE_FLAGS_avx512};-mavx512vnni;-mavx512bf16)
set(MILLRACE_FLAGS_amx ${MILLRACE_FLAGS_avx512};-mavx512vnni;-mavx512vbmi;-mavx512bf16;-mamx-tile)
set(MILLRACE_FLAGS_amxint8 ${MILLRACE_FLAGS_amx};-mamx-int8)
set(MILLRACE_FLAGS_amxbf16 ${MILLRACE_FLAGS_amx};-mamx-bf16)
set(MILLRACE_FLAGS_dotprod -march=armv8.2-a+dotprod)
set(MILLRACE_FLAGS_i8mm -march=armv8.2-a+dotprod+i8mm)
set(MILLRACE_FLAGS_armbf16 -march=armv8.2-a+bf16)
