# Files installed alongside the program, and the Debian package:
#
#   bin/millrace                                     share/bash-completion/completions/millrace
#   lib/systemd/system/millrace.service              share/zsh/vendor-completions/_millrace
#   lib/systemd/user/millrace.service                share/fish/vendor_completions.d/millrace.fish
#   share/man/man1/millrace{,-COMMAND}.1             share/doc/millrace/{dashboard,alerts, ...}
#
# The program that was just built prints its completions and manual pages. `cpack -G DEB` in the build folder writes
# millrace_VERSION_ARCH.deb with the component "program", without headers and library (MillraceInstall.cmake), and
# `cpack -G TGZ` the same files as millrace-VERSION-linux-ARCH.tar.gz, for this distribution;
# tools/package_tarball links a program for every distribution with glibc 2.31 or newer.
if(NOT TARGET millrace OR MILLRACE_SANITIZE OR MILLRACE_FUZZ)
  return()
endif()

set(printed ${CMAKE_BINARY_DIR}/printed)
file(MAKE_DIRECTORY ${printed})
add_custom_command(OUTPUT ${printed}/man1/millrace.1 ${printed}/millrace.bash ${printed}/_millrace ${printed}/millrace.fish
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${printed}/man1
  COMMAND millrace man --all ${printed}/man1
  COMMAND millrace completion bash > ${printed}/millrace.bash
  COMMAND millrace completion zsh > ${printed}/_millrace
  COMMAND millrace completion fish > ${printed}/millrace.fish
  DEPENDS millrace COMMENT "Generating manual pages and completions" VERBATIM)
add_custom_target(millrace_printed ALL DEPENDS ${printed}/man1/millrace.1 ${printed}/millrace.bash ${printed}/_millrace)

install(DIRECTORY ${printed}/man1/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
install(FILES ${printed}/millrace.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME millrace COMPONENT program)
install(FILES ${printed}/_millrace DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT program)
install(FILES ${printed}/millrace.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT program)
install(FILES ${CMAKE_SOURCE_DIR}/docs/ops/millrace.service DESTINATION lib/systemd/system COMPONENT program)
install(FILES ${CMAKE_SOURCE_DIR}/docs/ops/millrace-user.service DESTINATION lib/systemd/user RENAME millrace.service COMPONENT program)
install(FILES ${CMAKE_SOURCE_DIR}/docs/ops/grafana.json ${CMAKE_SOURCE_DIR}/docs/ops/prometheus-rules.yaml ${CMAKE_SOURCE_DIR}/LICENSE
        DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME millrace)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_VENDOR millrace)
set(CPACK_PACKAGE_CONTACT "millrace <root@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "LLM inference and serving engine for the CPU")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_ARCHIVE_PROGRAM_FILE_NAME "millrace-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME millrace)
set(CPACK_DEBIAN_PROGRAM_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS "libpangocairo-1.0-0, fonts-dejavu-core, coinor-libclp1")  # for --picture and weights=flexgen; loaded at run time
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# /etc/default/millrace is kept over upgrades (conffiles); scripts restart the service after one, and stop it before removal.
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/DebianDefaults.cmake)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_LIST_DIR}/debian/conffiles ${CMAKE_CURRENT_LIST_DIR}/debian/postinst
    ${CMAKE_CURRENT_LIST_DIR}/debian/prerm ${CMAKE_CURRENT_LIST_DIR}/debian/postrm)
include(CPack)
