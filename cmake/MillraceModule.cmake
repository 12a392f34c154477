# add_module(NAME DEPS module... LIBS target... ALONE regex... [HOT])
#
# One static library millrace_NAME from src/NAME/**/*.cc, and one test program NAME_test from
# src/NAME/**/*_test.cc (GoogleTest, registered with CTest). Sources are globbed with
# CONFIGURE_DEPENDS, so a new file cannot be forgotten. A folder that does not exist is skipped. Only modules whose loops
# run over numbers are HOT and compiled at -O3; the rest at -O2.
set(MILLRACE_MODULES "" CACHE INTERNAL "")

# Most compile time goes into reading headers, so several files are compiled as one (a unity build), which halves a cold
# build. Names in the unnamed namespaces of two files of a module then collide: rename one, or list families whose members
# deliberately share names under ALONE. The dev preset compiles each file on its own.
option(MILLRACE_UNITY "Compile several files at a time" ON)
set(MILLRACE_UNITY_FILES 24)
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

# Headers of the standard library, fmt and nlohmann-json, compiled once for the modules and once for the tests, whose flags
# differ. Files still include what they use: the dev preset builds without.
option(MILLRACE_PRECOMPILED "Precompile the largest headers" ON)
function(millrace_precompiled name)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/${name}.cc CONTENT "")
  add_library(millrace_${name} OBJECT ${CMAKE_BINARY_DIR}/generated/${name}.cc)
  target_include_directories(millrace_${name} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(millrace_${name} PRIVATE millrace_flags fmt::fmt nlohmann_json::nlohmann_json)
  target_precompile_headers(millrace_${name} PRIVATE <algorithm> <charconv> <chrono> <cmath> <cstdint> <cstring>
    <filesystem> <fstream> <functional> <future> <map> <memory> <mutex> <numeric> <optional> <random> <set> <span>
    <string> <string_view> <thread> <unordered_map> <unordered_set> <variant> <vector> <fmt/format.h>
    <base/ordered_json.h> ${ARGN})
endfunction()
if(MILLRACE_PRECOMPILED)
  millrace_precompiled(headers)
  target_compile_options(millrace_headers PRIVATE ${MILLRACE_FLAGS_module})
endif()

function(add_module name)
  cmake_parse_arguments(ARG "HOT" "" "DEPS;LIBS;ALONE" ${ARGN})
  set(dir ${CMAKE_SOURCE_DIR}/src/${name})
  file(GLOB_RECURSE all CONFIGURE_DEPENDS ${dir}/*.cc)
  list(FILTER all EXCLUDE REGEX "${MILLRACE_OTHER_PROCESSORS}")
  set(tests ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  set(sources ${all})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  set(deps millrace_flags fmt::fmt)
  foreach(dep ${ARG_DEPS})
    list(APPEND deps millrace_${dep})
  endforeach()

  if(sources)
    foreach(isa IN LISTS MILLRACE_ISA_FILES)
      set(isa_sources ${sources})
      list(FILTER isa_sources INCLUDE REGEX "_${isa}\\.cc$")
      set_source_files_properties(${isa_sources} PROPERTIES COMPILE_OPTIONS "${MILLRACE_FLAGS_${isa}}")
    endforeach()
    millrace_sanitized_kernels(sources)
    millrace_native_kernels(sources)
    add_library(millrace_${name} STATIC ${sources})
    target_include_directories(millrace_${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src>
      $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>)
    target_link_libraries(millrace_${name} PUBLIC ${deps} ${ARG_LIBS})
    # CI compiles for Arm at -O1 for its compile time; kernels are tested, and their instructions counted, as they ship.
    set(for_arm ${sources})
    list(FILTER for_arm INCLUDE REGEX "/kernels/arm/")
    set_property(SOURCE ${for_arm} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>)
    millrace_unity(millrace_${name} "/kernels/(x86|arm|vector)/" ${ARG_ALONE})
    if(NOT ARG_HOT)
      target_compile_options(millrace_${name} PRIVATE ${MILLRACE_FLAGS_module})
      if(MILLRACE_PRECOMPILED)
        target_precompile_headers(millrace_${name} REUSE_FROM millrace_headers)
      endif()
    endif()
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
function(millrace_test_options target)
  target_include_directories(${target} PRIVATE ${CMAKE_BINARY_DIR}/generated)  # test_paths.h
  # Tests spend their time in the libraries, so their own code is optimized for compile time.
  target_compile_options(${target} PRIVATE ${MILLRACE_FLAGS_quick} $<$<CONFIG:Release>:-O1>)
  set_target_properties(${target} PROPERTIES MILLRACE_TEST_CODE ON)
endfunction()
if(MILLRACE_TESTS AND MILLRACE_PRECOMPILED)
  millrace_precompiled(test_headers <gtest/gtest.h>)
  target_link_libraries(millrace_test_headers PRIVATE GTest::gtest)
  millrace_test_options(millrace_test_headers)
endif()
function(millrace_discover_tests target)
  millrace_test_options(${target})
  millrace_unity(${target})
  if(MILLRACE_PRECOMPILED)
    target_precompile_headers(${target} REUSE_FROM millrace_test_headers)
  endif()
  add_test(NAME ${target} COMMAND ${target})
  if(MILLRACE_SANITIZE AND target STREQUAL "properties_test")
    set_tests_properties(${target} PROPERTIES COST 300)  # the longest by far: from the start
  endif()
  if(MILLRACE_SANITIZE AND target STREQUAL "regressions_test")  # whole, whatever part of the cases others run
    set_tests_properties(${target} PROPERTIES COST 200 ENVIRONMENT "GTEST_TOTAL_SHARDS=1;GTEST_SHARD_INDEX=0")
  endif()
endfunction()
