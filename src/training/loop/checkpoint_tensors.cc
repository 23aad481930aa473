#include "loop/checkpoint_tensors.h"

#include <set>
#include <string_view>

#include "checkpoint_tensor/chunk_tensor.h"

namespace yard::loop {
namespace {

using parallel::ShardedTensor;

checkpoint::Shape whole_shape(const ShardedTensor& tensor) {
  checkpoint::Shape shape;
  for (const int64_t side : tensor.shape) shape.push_back(static_cast<uint64_t>(side));
  return shape;
}

// Visits the pieces until one is refused.
Status for_each_piece(const std::vector<ShardedTensor>& tensors,
                      const std::function<Status(const ShardedTensor&, const at::Tensor&,
                                                 checkpoint::Region)>& visit) {
  for (const ShardedTensor& tensor : tensors) {
    for (const parallel::TensorPiece& piece : tensor.pieces) {
      const auto begin = static_cast<uint64_t>(piece.begin);
      const auto end = begin + static_cast<uint64_t>(piece.values.numel());
      YARD_TRY(visit(tensor, piece.values, checkpoint::Region::flat(begin, end)));
    }
  }
  return Ok{};
}

std::string part_of(std::string_view parameter) {
  return std::string(parameter.substr(0, parameter.find('.') + 1));
}

}  // namespace

Result<std::vector<checkpoint::TensorView>> chunks_to_save(
    const Networks& networks, const std::vector<ShardedTensor>& pieces) {
  std::vector<checkpoint::TensorView> chunks;
  YARD_TRY(for_each_piece(pieces,
                          [&](const ShardedTensor& tensor, const at::Tensor& values,
                              checkpoint::Region region) -> Status {
                            YARD_ASSIGN(chunks.emplace_back(),
                                        checkpoint::chunk_view(tensor.name, values,
                                                               whole_shape(tensor), region));
                            return Ok{};
                          }));
  std::set<std::string_view> done;
  for (const ShardedTensor& tensor : pieces) done.insert(tensor.name);
  for (const models::NamedTensor& p : networks.parameters()) {
    if (done.contains(p.name) || !has_memory(p.tensor)) continue;
    YARD_ASSIGN(chunks.emplace_back(), checkpoint::chunk_view(p.name, p.tensor));
  }
  return chunks;
}

Result<std::vector<checkpoint::TensorTarget>> chunks_to_load(
    const std::vector<ShardedTensor>& pieces) {
  std::vector<checkpoint::TensorTarget> chunks;
  YARD_TRY(for_each_piece(pieces,
                          [&](const ShardedTensor& tensor, const at::Tensor& values,
                              checkpoint::Region region) -> Status {
                            YARD_ASSIGN(chunks.emplace_back(),
                                        checkpoint::chunk_target(tensor.name, values,
                                                                 whole_shape(tensor), region));
                            return Ok{};
                          }));
  return chunks;
}

Result<std::vector<checkpoint::TensorTarget>> chunks_to_load(
    const Networks& networks, const std::vector<models::NamedTensor>& trained,
    const checkpoint::CheckpointManifest& manifest) {
  std::set<std::string_view> others;
  for (const models::NamedTensor& p : trained) others.insert(p.name);
  std::set<std::string> parts;
  for (const auto& [name, record] : manifest.tensors) parts.insert(part_of(name));
  std::vector<checkpoint::TensorTarget> chunks;
  for (const models::NamedTensor& p : networks.parameters()) {
    if (others.contains(p.name) || !parts.contains(part_of(p.name))) continue;
    give_memory(p.tensor);
    YARD_ASSIGN(chunks.emplace_back(), checkpoint::chunk_target(p.name, p.tensor));
  }
  return chunks;
}

}  // namespace yard::loop
