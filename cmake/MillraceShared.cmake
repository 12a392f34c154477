# libmillrace.so.0: the C interface (include/millrace.h) with everything behind it, for programs that embed the engine.
#
# Nothing is compiled twice. The objects are those of the program, position-independent as an executable is (-fPIE).
# Three things make them fit for a shared library on x86-64:
#
#   exports.map             makes every symbol local but the interface, so that direct references are allowed
#   -static-libstdc++       and single_threaded.S: no direct reference to a variable of another library is left
#   tls_model attributes    in three places of src/: variables of a thread are found through a table
#
# Where this does not hold (another processor or compiler, a compiler without -fPIE by default, a Debug build, whose
# assertions have more variables of a thread), MILLRACE_SHARED=ON compiles every object with -fPIC.
include(CheckCXXSourceCompiles)
set(shared_default OFF)
if(CMAKE_SYSTEM_NAME STREQUAL Linux AND CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64 AND CMAKE_CXX_COMPILER_ID STREQUAL GNU AND
   CMAKE_BUILD_TYPE STREQUAL Release AND NOT MILLRACE_SANITIZE AND NOT MILLRACE_FUZZ)
  check_cxx_source_compiles("#ifndef __PIE__\n#error\n#endif\nint main() {}" MILLRACE_PIE_BY_DEFAULT)
  set(shared_default ${MILLRACE_PIE_BY_DEFAULT})
endif()
option(MILLRACE_SHARED "Build the shared library libmillrace.so with the C interface" ${shared_default})
if(NOT MILLRACE_SHARED)
  return()
endif()
if(NOT shared_default)  # chosen by hand
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
endif()

set(MILLRACE_EXPORTS ${CMAKE_SOURCE_DIR}/src/capi/exports.map)
# add_c_library(TARGET): a shared library with the C interface.
function(add_c_library target)
  add_library(${target} SHARED ${CMAKE_SOURCE_DIR}/src/capi/single_threaded.S)
  # With fmt inside, too, no other libstdc++ is in the process on behalf of the library. fmt.cc has the functions of
  # fmt 9.
  if(fmt_VERSION VERSION_GREATER_EQUAL 9 AND fmt_VERSION VERSION_LESS 10)
    target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tools/portable/fmt.cc)
    target_link_options(${target} PRIVATE -Wl,--as-needed)
  endif()
  target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
  # With -u, because nothing in the library itself refers to the interface.
  file(STRINGS ${MILLRACE_EXPORTS} exported REGEX "^ +millrace_[a-z_]+;")
  list(TRANSFORM exported REPLACE " *([a-z_]+);" "-Wl,-u,\\1")
  target_link_options(${target} PRIVATE ${exported} -Wl,--version-script=${MILLRACE_EXPORTS} -Wl,-z,defs -static-libstdc++
                      -static-libgcc)
  target_link_libraries(${target} PRIVATE millrace_capi millrace_version)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME millrace VERSION ${PROJECT_VERSION} SOVERSION 0
                        LINKER_LANGUAGE CXX LINK_DEPENDS ${MILLRACE_EXPORTS})
endfunction()
