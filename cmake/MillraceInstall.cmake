# What `cmake --install` installs, so that another project can find_package(millrace):
#
#   bin/millrace
#   include/millrace/*.h                 the public C++ API, and nothing else
#   lib/libmillrace.a                    every module that the public API needs, in one archive
#   include/millrace.h                   the C interface
#   lib/libmillrace.so*                  a shared library with the C interface (MillraceShared.cmake)
#   lib/pkgconfig/millrace.pc            its flags
#   lib/cmake/millrace/*.cmake           target millrace::millrace with its link dependencies
#
# The C++ API is a static archive, because its ABI is not stable yet and a statically linked program starts faster.
if(MILLRACE_SANITIZE)  # nothing is installed with sanitizers
  return()
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(objects "")  # the embedded models are in the run module's objects
foreach(module ${MILLRACE_MODULES})
  get_target_property(type millrace_${module} TYPE)
  if(NOT module MATCHES "^(train|learn|workload|hub|server|replay|picture|terminal|compare|exactness|retrieve)$" AND type STREQUAL STATIC_LIBRARY)
    list(APPEND objects $<TARGET_OBJECTS:millrace_${module}>)
  endif()
endforeach()

add_library(millrace_package STATIC ${objects})
add_library(millrace::millrace ALIAS millrace_package)
set_target_properties(millrace_package PROPERTIES OUTPUT_NAME millrace EXPORT_NAME millrace LINKER_LANGUAGE CXX)
target_compile_features(millrace_package INTERFACE cxx_std_20)
target_include_directories(millrace_package INTERFACE
  $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
# Link dependencies of the archive. An installed archive uses the targets that millraceConfig.cmake finds.
target_link_libraries(millrace_package INTERFACE Threads::Threads fmt::fmt
  "$<BUILD_INTERFACE:PkgConfig::PCRE2;PkgConfig::UTF8PROC;PkgConfig::XXHASH;PkgConfig::HIREDIS;$<TARGET_NAME_IF_EXISTS:PkgConfig::URING>>"
  "$<INSTALL_INTERFACE:PkgConfig::MILLRACE_PCRE2;PkgConfig::MILLRACE_UTF8PROC;PkgConfig::MILLRACE_XXHASH;PkgConfig::MILLRACE_HIREDIS;$<TARGET_NAME_IF_EXISTS:PkgConfig::MILLRACE_URING>>")

set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/millrace)
install(TARGETS millrace_package EXPORT millraceTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET millrace)
  install(TARGETS millrace RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
endif()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/millrace DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
if(TARGET millrace_shared)
  install(TARGETS millrace_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES ${CMAKE_SOURCE_DIR}/include/millrace.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  # A path relative to the folder of the .pc file, so that an installation may be moved.
  file(RELATIVE_PATH pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")
  configure_file(${CMAKE_CURRENT_LIST_DIR}/millrace.pc.in ${CMAKE_BINARY_DIR}/millrace.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/millrace.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
install(EXPORT millraceTargets NAMESPACE millrace:: DESTINATION ${config_folder})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/millraceConfig.cmake.in
  ${CMAKE_BINARY_DIR}/millraceConfig.cmake INSTALL_DESTINATION ${config_folder})
# Before 1.0 a minor version may change the API.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/millraceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/millraceConfig.cmake ${CMAKE_BINARY_DIR}/millraceConfigVersion.cmake
        DESTINATION ${config_folder})
