# The CPU half of libtorch: libtorch_cpu and libc10 as the target TorchCpu::TorchCpu.
# find_package(Torch) of a CUDA wheel drags in all of CUDA, which the CPU libraries do not need.
# Looks in SPILLWAY_TORCH_DIR, then in the prefix that scripts/setup.sh fills.
set(_torch_hints ${SPILLWAY_TORCH_DIR} ${SPILLWAY_TORCH_DIR}/torch ${PROJECT_SOURCE_DIR}/.deps/python/torch)

find_path(TorchCpu_INCLUDE_DIR ATen/ATen.h HINTS ${_torch_hints} PATH_SUFFIXES include)
find_library(TorchCpu_LIBRARY torch_cpu HINTS ${_torch_hints} PATH_SUFFIXES lib)
find_library(TorchCpu_C10_LIBRARY c10 HINTS ${_torch_hints} PATH_SUFFIXES lib)

set(TorchCpu_VERSION "")
if(TorchCpu_INCLUDE_DIR AND EXISTS ${TorchCpu_INCLUDE_DIR}/torch/version.h)
  file(STRINGS ${TorchCpu_INCLUDE_DIR}/torch/version.h _line REGEX "define TORCH_VERSION \"")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" TorchCpu_VERSION "${_line}")
elseif(TorchCpu_INCLUDE_DIR AND EXISTS ${TorchCpu_INCLUDE_DIR}/torch/headeronly/version.h)
  file(STRINGS ${TorchCpu_INCLUDE_DIR}/torch/headeronly/version.h _line REGEX "define TORCH_VERSION \"")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" TorchCpu_VERSION "${_line}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TorchCpu REQUIRED_VARS TorchCpu_LIBRARY TorchCpu_C10_LIBRARY TorchCpu_INCLUDE_DIR
                                  VERSION_VAR TorchCpu_VERSION)

if(TorchCpu_FOUND AND NOT TARGET TorchCpu::TorchCpu)
  add_library(TorchCpu::TorchCpu SHARED IMPORTED GLOBAL)
  set_target_properties(TorchCpu::TorchCpu PROPERTIES
    IMPORTED_LOCATION ${TorchCpu_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES "${TorchCpu_INCLUDE_DIR};${TorchCpu_INCLUDE_DIR}/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES ${TorchCpu_C10_LIBRARY})
endif()
