# add_module(NAME DEPS module... LIBS target... ALONE regex...)
#
# One static library millrace_NAME from src/NAME/**/*.cc, and one test program NAME_test from
# src/NAME/**/*_test.cc (GoogleTest, registered with CTest). Sources are globbed with
# CONFIGURE_DEPENDS, so a new file cannot be forgotten. A folder that does not exist is skipped.
set(MILLRACE_MODULES "" CACHE INTERNAL "")

# Most compile time goes into reading headers, so several files are compiled as one (a unity build), which halves a cold
# build. Names in the unnamed namespaces of two files of a module then collide: rename one, or list families whose members
# deliberately share names under ALONE. The dev preset compiles each file on its own.
option(MILLRACE_UNITY "Compile several files at a time" ON)
set(MILLRACE_UNITY_FILES 8)
function(millrace_unity target)
  if(NOT MILLRACE_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${MILLRACE_UNITY_FILES})
  get_target_property(alone ${target} SOURCES)
  set(pattern ${ARGN})
  list(JOIN pattern "|" pattern)
  if(pattern)
    list(FILTER alone INCLUDE REGEX "${pattern}")
    set_source_files_properties(${alone} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

function(add_module name)
  cmake_parse_arguments(ARG "" "" "DEPS;LIBS;ALONE" ${ARGN})
  set(dir ${CMAKE_SOURCE_DIR}/src/${name})
  file(GLOB_RECURSE all CONFIGURE_DEPENDS ${dir}/*.cc)
  set(tests ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  set(sources ${all})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  set(deps millrace_flags fmt::fmt)
  foreach(dep ${ARG_DEPS})
    list(APPEND deps millrace_${dep})
  endforeach()

  if(sources)
    add_library(millrace_${name} STATIC ${sources})
    target_include_directories(millrace_${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src>
      $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>)
    target_link_libraries(millrace_${name} PUBLIC ${deps} ${ARG_LIBS})
    foreach(isa avx2 avx512)
      set(isa_sources ${sources})
      list(FILTER isa_sources INCLUDE REGEX "_${isa}\\.cc$")
      set_source_files_properties(${isa_sources} PROPERTIES COMPILE_OPTIONS "${MILLRACE_FLAGS_${isa}}")
    endforeach()
    # With both sanitizers these files take three minutes each to compile, and with the address sanitizer's checks of
    # local variables, which are vectors here, still two and a half; without those 22 s.
    if(MILLRACE_SANITIZE MATCHES "address,undefined")
      set(slow ${sources})
      list(FILTER slow INCLUDE REGEX "/matmul_quant_avx")
      set_property(SOURCE ${slow} APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=undefined
                   $<$<CXX_COMPILER_ID:GNU>:--param=asan-stack=0>)
    endif()
    millrace_unity(millrace_${name} "/x86/" ${ARG_ALONE})
  else()
    add_library(millrace_${name} INTERFACE)
    target_include_directories(millrace_${name} INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src>
      $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>)
    target_link_libraries(millrace_${name} INTERFACE ${deps} ${ARG_LIBS})
  endif()
  set(MILLRACE_MODULES "${MILLRACE_MODULES};${name}" CACHE INTERNAL "")

  if(MILLRACE_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_include_directories(${name}_test PRIVATE ${CMAKE_SOURCE_DIR}/tests)
    target_link_libraries(${name}_test PRIVATE millrace_${name} GTest::gtest GTest::gtest_main
                          LibLZMA::LibLZMA)
    millrace_discover_tests(${name}_test)
  endif()
endfunction()

# Paths of the checkout go into a header, not onto command lines, so that checkouts can share a compiler cache.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/test_paths.h CONTENT
"#pragma once\n#define MILLRACE_SOURCE_DIR \"${CMAKE_SOURCE_DIR}\"\n#define MILLRACE_BINARY_DIR \"${CMAKE_BINARY_DIR}\"\n")
function(millrace_discover_tests target)
  target_include_directories(${target} PRIVATE ${CMAKE_BINARY_DIR}/generated)  # test_paths.h
  # Tests spend their time in the libraries, so their own code is optimized for compile time.
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  # The libraries are checked for undefined behaviour; in the tests' own code that would cost a third of its compile time.
  if(MILLRACE_SANITIZE MATCHES "address,undefined")
    target_compile_options(${target} PRIVATE -fno-sanitize=undefined)
  endif()
  millrace_unity(${target})
  add_test(NAME ${target} COMMAND ${target})
endfunction()
