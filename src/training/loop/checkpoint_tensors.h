// What of a run's tensors this rank saves and loads: the trained ones in the pieces that it holds,
// all others whole.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/load.h"
#include "checkpoint/saver.h"
#include "loop/networks.h"
#include "parallel/sharded_tensor.h"

namespace yard::loop {

// The chunks that `pieces` are, then of `networks` every parameter that has memory and no piece.
// They refer to the tensors' memory, which must live as long. kInvalidArgument names a tensor that
// cannot be stored.
Result<std::vector<checkpoint::TensorView>> chunks_to_save(
    const Networks& networks, const std::vector<parallel::ShardedTensor>& pieces);

// Places for the same pieces.
Result<std::vector<checkpoint::TensorTarget>> chunks_to_load(
    const std::vector<parallel::ShardedTensor>& pieces);
// Places for the parameters of `networks` that are not `trained`, whole. Those that have no memory
// get some. A part of which the checkpoint has nothing stays as it is.
Result<std::vector<checkpoint::TensorTarget>> chunks_to_load(
    const Networks& networks, const std::vector<models::NamedTensor>& trained,
    const checkpoint::CheckpointManifest& manifest);

}  // namespace yard::loop
