// What the operations of YardBackend check of torch's arguments, and make of them. Throws
// c10::Error for what cannot be.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <memory>
#include <vector>

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "process_group/piece.h"
#include "process_group/reduction.h"

namespace yard::process_group {

using SharedPiece = std::shared_ptr<Piece>;

// The list's one member: torch's lists are from the time of several GPUs in a process.
template <typename T>
T& only(std::vector<T>& list, const char* what) {
  TORCH_CHECK(list.size() == 1, what, " takes one tensor or list of tensors per rank, not ",
              list.size());
  return list[0];
}

// Dense CPU tensors of one type.
void check(const std::vector<at::Tensor>& tensors, const char* what);
void check_root(int64_t root, int world_size, const char* what);
// As many members as there are ranks.
void check_count(const std::vector<at::Tensor>& tensors, int world_size, const char* what);

SharedPiece piece_of(std::vector<at::Tensor> tensors, Content content);
// What a reduction reads, and writes where it is in place: scaled for PREMUL_SUM.
SharedPiece addend_of(std::vector<at::Tensor> tensors, const c10d::ReduceOp& op);
// What is written while `in` is read.
SharedPiece room_for(std::vector<at::Tensor> tensors, const Piece& in);

Reduction reduction_for(const at::Tensor& tensor, const c10d::ReduceOp& op);
bool same_element_counts(const std::vector<at::Tensor>& tensors, int64_t count);

}  // namespace yard::process_group
