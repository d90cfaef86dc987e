# `cmake --install` gives find_package(mkernel) with the target mkernel::mkernel, and the application.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/mkernel)

install(TARGETS mkernel EXPORT mkernelTargets)
install(TARGETS mkernel_app)
install(DIRECTORY include/mkernel TYPE INCLUDE FILES_MATCHING PATTERN "*.h")
install(EXPORT mkernelTargets NAMESPACE mkernel:: DESTINATION ${package_dir})

configure_package_config_file(cmake/mkernelConfig.cmake.in ${PROJECT_BINARY_DIR}/mkernelConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/mkernelConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/mkernelConfig.cmake ${PROJECT_BINARY_DIR}/mkernelConfigVersion.cmake
  DESTINATION ${package_dir})
