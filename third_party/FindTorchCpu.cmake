# The CPU half of libtorch: libtorch_cpu and libc10 as the target TorchCpu::TorchCpu.
# find_package(Torch) of a CUDA wheel drags in all of CUDA, which the CPU libraries do not need.
# Looks in SPILLWAY_TORCH_DIR, then in the prefix that scripts/setup.sh fills.
set(_torch_hints ${SPILLWAY_TORCH_DIR} ${SPILLWAY_TORCH_DIR}/torch ${PROJECT_SOURCE_DIR}/.deps/python/torch)

find_path(TorchCpu_INCLUDE_DIR ATen/ATen.h HINTS ${_torch_hints} PATH_SUFFIXES include)
find_library(TorchCpu_LIBRARY torch_cpu HINTS ${_torch_hints} PATH_SUFFIXES lib)
find_library(TorchCpu_C10_LIBRARY c10 HINTS ${_torch_hints} PATH_SUFFIXES lib)

# The header that spells the version moved between releases; the three numbers have kept their names.
set(TorchCpu_VERSION "")
foreach(_header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
  if(TorchCpu_INCLUDE_DIR AND NOT TorchCpu_VERSION AND EXISTS ${TorchCpu_INCLUDE_DIR}/${_header})
    file(READ ${TorchCpu_INCLUDE_DIR}/${_header} _text)
    foreach(_part MAJOR MINOR PATCH)
      string(REGEX MATCH "TORCH_VERSION_${_part} ([0-9]+)" _ "${_text}")
      list(APPEND TorchCpu_VERSION ${CMAKE_MATCH_1})
    endforeach()
    list(JOIN TorchCpu_VERSION "." TorchCpu_VERSION)
  endif()
endforeach()

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
