# Whether the transport over libfabric is compiled. Only its headers are needed: the library itself
# is looked for at run time.
find_path(LIBFABRIC_INCLUDE_DIR rdma/fabric.h)
set(MKERNEL_WITH_LIBFABRIC OFF)
if(MKERNEL_LIBFABRIC STREQUAL "ON" OR (MKERNEL_LIBFABRIC STREQUAL "AUTO" AND LIBFABRIC_INCLUDE_DIR))
  set(MKERNEL_WITH_LIBFABRIC ON)
  if(NOT LIBFABRIC_INCLUDE_DIR)
    message(FATAL_ERROR "mkernel: MKERNEL_LIBFABRIC=ON, and no rdma/fabric.h (libfabric-dev)")
  endif()
endif()
message(STATUS "mkernel: libfabric ${MKERNEL_WITH_LIBFABRIC}")
