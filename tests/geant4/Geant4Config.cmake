# Geant4 for the tests where none is installed: its library is that of the Python wheel geant4-pybind, which exports the
# C++ symbols of nearly a whole Geant4. Headers, and the sources of two classes that the wheel leaves out, are of
# Geant4's release.
#
# GEANT4_WHEEL: the folder of the wheel's library. GEANT4_SOURCE: a folder whose include/ holds the headers of all of the
# release's folders source/**/include, and whose src/ the two sources below. Python's own library is that of the
# interpreter, whose symbols the wheel's library wants.
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

# The wheel is of 11.4.1, which has one virtual function more than the headers of 11.4.0.
file(READ "${GEANT4_SOURCE}/include/G4RunManager.hh" _header)
if(NOT _header MATCHES "GeometryOptimisation")
  string(REPLACE "virtual void InitializePhysics();"
                 "virtual void GeometryOptimisation();\n    virtual void InitializePhysics();" _header "${_header}")
endif()
file(CONFIGURE OUTPUT "${_made}/G4RunManager.hh" CONTENT "${_header}" @ONLY)

if(NOT TARGET geant4_wheel)
  add_library(geant4_wheel_rest STATIC "${GEANT4_SOURCE}/src/G4VFastSimulationModel.cc"
              "${GEANT4_SOURCE}/src/G4VUserActionInitialization.cc")
  target_include_directories(geant4_wheel_rest SYSTEM PRIVATE "${GEANT4_SOURCE}/include" "${_made}")
  target_compile_options(geant4_wheel_rest PRIVATE -include "${_made}/G4RunManager.hh")
  set_target_properties(geant4_wheel_rest PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_STANDARD 17)
  add_library(geant4_wheel_library UNKNOWN IMPORTED GLOBAL)
  set_target_properties(geant4_wheel_library PROPERTIES IMPORTED_LOCATION "${_library}")
  add_library(geant4_wheel INTERFACE)
  target_link_libraries(geant4_wheel INTERFACE geant4_wheel_rest geant4_wheel_library Python3::Python)
  target_compile_options(geant4_wheel INTERFACE -include "${_made}/G4RunManager.hh") # before any header asks for it
  target_link_options(geant4_wheel INTERFACE "LINKER:-rpath,${GEANT4_WHEEL}" "LINKER:-rpath-link,${GEANT4_WHEEL}/geant4_pybind.libs")
endif()
set(Geant4_LIBRARIES geant4_wheel)
set(Geant4_INCLUDE_DIRS "${GEANT4_SOURCE}/include" "${_made}")
set(Geant4_DEFINITIONS "")
