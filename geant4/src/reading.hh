// Functions that read the parts of an exported file. Each throws std::runtime_error, in one line, if the file is not as
// expected.
#pragma once

#include "contents.hh"
#include "file.hh"

namespace calopipe {

// The card's `geometry`: layers, and the shape of the mesh.
void read_geometry(const Json& geometry, Model::Contents& into);
// Call these in this order, since sizes follow from what was read before.
void read_mesh(const TensorFile& file, Mesh& mesh);
void read_constants(const TensorFile& file, const Model::Contents& model, Constants& into);
void read_networks(const TensorFile& file, Model::Contents& model);

int whole(const Json& number);
[[noreturn]] void refuse(const std::string& name);

}  // namespace calopipe
