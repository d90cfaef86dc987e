# Whether the verbs libraries of a system can be used (MKERNEL_WITH_VERBS). Only their headers are
# needed to build; the libraries are found when the program runs.
set(MKERNEL_WITH_VERBS OFF)
if(NOT MKERNEL_VERBS STREQUAL "OFF")
  include(CheckIncludeFileCXX)
  check_include_file_cxx(infiniband/efadv.h MKERNEL_HAS_VERBS_HEADERS)
  if(MKERNEL_HAS_VERBS_HEADERS)
    set(MKERNEL_WITH_VERBS ON)
  elseif(MKERNEL_VERBS STREQUAL "ON")
    message(FATAL_ERROR "MKERNEL_VERBS is ON: infiniband/efadv.h is not there (libibverbs-dev)")
  endif()
endif()
message(STATUS "mkernel: verbs ${MKERNEL_WITH_VERBS}")
