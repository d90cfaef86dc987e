# Whether kernels are compiled (MKERNEL_WITH_CUDA), and how (mkernel_add_kernels).
set(MKERNEL_WITH_CUDA OFF)
if(MKERNEL_CUDA STREQUAL "AUTO")
  include(CheckLanguage)
  check_language(CUDA)
endif()
if(MKERNEL_CUDA STREQUAL "ON" OR (MKERNEL_CUDA STREQUAL "AUTO" AND CMAKE_CUDA_COMPILER))
  set(MKERNEL_WITH_CUDA ON)
endif()
message(STATUS "mkernel: GPU kernels ${MKERNEL_WITH_CUDA}")
if(NOT MKERNEL_WITH_CUDA)
  return()
endif()

set(CMAKE_CUDA_ARCHITECTURES OFF)  # said below, by -gencode
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # for nvcc, CMake 3.25 has none beyond 17
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_EXTENSIONS OFF)

# An object library, so that what links it stays a C++ target: it then needs no nvcc, neither here
# nor in a project that finds the installed library.
function(mkernel_add_kernels target)
  add_library(${target} OBJECT ${ARGN})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_compile_definitions(${target} PRIVATE MK_WITH_CUDA=1
    NDEBUG)  # in every build type: with assertions in the main loop ptxas serialises wgmma
  target_compile_options(${target} PRIVATE
    -gencode=arch=compute_90a,code=sm_90a -lineinfo --expt-relaxed-constexpr
    -Xptxas=-v -Xcompiler=-Wall,-Wextra --Werror=all-warnings)
  # The launcher keeps what -Xptxas=-v prints beside the object, for tools/check_registers.py.
  set_target_properties(${target} PROPERTIES
    CUDA_COMPILER_LAUNCHER "${PROJECT_SOURCE_DIR}/tools/keep_ptxas_log.sh;${CCACHE}")
endfunction()
