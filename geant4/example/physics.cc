#include "physics.hh"

#include <G4ComptonScattering.hh>
#include <G4Electron.hh>
#include <G4Gamma.hh>
#include <G4GammaConversion.hh>
#include <G4PEEffectFluoModel.hh>
#include <G4PhotoElectricEffect.hh>
#include <G4PhysicsListHelper.hh>
#include <G4Positron.hh>
#include <G4UrbanMscModel.hh>
#include <G4eBremsstrahlung.hh>
#include <G4eBremsstrahlungRelModel.hh>
#include <G4eIonisation.hh>
#include <G4eMultipleScattering.hh>
#include <G4eplusAnnihilation.hh>

void PhysicsWithoutData::ConstructParticle() {
  G4Gamma::Definition();
  G4Electron::Definition();
  G4Positron::Definition();
}

void PhysicsWithoutData::ConstructProcess() {
  auto* helper = G4PhysicsListHelper::GetPhysicsListHelper();
  auto* photoelectric = new G4PhotoElectricEffect;
  photoelectric->SetEmModel(new G4PEEffectFluoModel);
  helper->RegisterProcess(photoelectric, G4Gamma::Definition());
  helper->RegisterProcess(new G4ComptonScattering, G4Gamma::Definition());
  helper->RegisterProcess(new G4GammaConversion, G4Gamma::Definition());
  for (G4ParticleDefinition* particle :
       std::initializer_list<G4ParticleDefinition*>{G4Electron::Definition(), G4Positron::Definition()}) {
    auto* scattering = new G4eMultipleScattering;
    scattering->SetEmModel(new G4UrbanMscModel);
    helper->RegisterProcess(scattering, particle);
    helper->RegisterProcess(new G4eIonisation, particle);
    auto* radiation = new G4eBremsstrahlung;
    radiation->SetEmModel(new G4eBremsstrahlungRelModel, 0);
    radiation->SetEmModel(new G4eBremsstrahlungRelModel, 1);
    helper->RegisterProcess(radiation, particle);
  }
  helper->RegisterProcess(new G4eplusAnnihilation, G4Positron::Definition());
}
