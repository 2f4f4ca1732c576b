// Physics of electrons, positrons and photons, by models that need no data files, as in the sample.
#pragma once

#include <G4VPhysicsConstructor.hh>

// Compton, Bethe-Heitler with LPM, photoelectric effect, Urban multiple scattering, ionisation, relativistic
// bremsstrahlung, annihilation. This is none of Geant4's standard lists; --physics FTFP_BERT takes a standard list.
class PhysicsWithoutData : public G4VPhysicsConstructor {
 public:
  PhysicsWithoutData() : G4VPhysicsConstructor("without data") {}
  void ConstructParticle() override;
  void ConstructProcess() override;
};
