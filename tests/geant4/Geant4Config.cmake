# Geant4 for the tests where none is installed: its library is that of the Python wheel geant4-pybind, which exports the
# C++ symbols of a whole Geant4. Headers, and the source of a class that the wheel leaves out, are of Geant4's release.
#
# GEANT4_WHEEL: the folder of the wheel's library; GEANT4_SOURCE: a folder with include/ and src/. Python's own library
# is that of the interpreter, whose symbols the wheel's library wants.
find_package(Python3 3.11 EXACT REQUIRED COMPONENTS Development.Embed)
file(GLOB _library "${GEANT4_WHEEL}/geant4_pybind*.so")
if(NOT _library OR NOT EXISTS "${GEANT4_SOURCE}/include/G4Version.hh")
  set(Geant4_FOUND FALSE)
  set(Geant4_NOT_FOUND_MESSAGE "GEANT4_WHEEL and GEANT4_SOURCE hold no Geant4")
  return()
endif()

set(_made "${CMAKE_BINARY_DIR}/geant4-wheel")
foreach(_header PTL/Config.hh G4GeomConfig.hh) # a build of Geant4 makes them; all their options are off
  file(WRITE "${_made}/${_header}" "#pragma once\n")
endforeach()

if(NOT TARGET geant4_wheel)
  add_library(geant4_wheel_rest STATIC "${GEANT4_SOURCE}/src/G4VFastSimulationModel.cc")
  target_include_directories(geant4_wheel_rest SYSTEM PRIVATE "${GEANT4_SOURCE}/include")
  set_target_properties(geant4_wheel_rest PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_STANDARD 17)
  add_library(geant4_wheel INTERFACE)
  target_link_libraries(geant4_wheel INTERFACE geant4_wheel_rest "${_library}" Python3::Python)
  target_link_options(geant4_wheel INTERFACE "LINKER:-rpath,${GEANT4_WHEEL}" "LINKER:-rpath-link,${GEANT4_WHEEL}/geant4_pybind.libs")
endif()
set(Geant4_LIBRARIES geant4_wheel)
set(Geant4_INCLUDE_DIRS "${GEANT4_SOURCE}/include" "${_made}")
set(Geant4_DEFINITIONS "")
