#include <algorithm>

#include "process_group/arguments_internal.h"

namespace yard::process_group {

void check(const std::vector<at::Tensor>& tensors, const char* what) {
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.device().is_cpu(), what, ": the backend yard takes CPU tensors, not one on ",
                tensor.device(), "; the backend 'cpu:yard,cuda:nccl' takes both");
    TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided, what, " of a tensor of layout ",
                                tensor.layout());
    TORCH_CHECK_TYPE(tensor.scalar_type() == tensors[0].scalar_type(), what,
                     " takes tensors of one type, not ", tensors[0].scalar_type(), " and ",
                     tensor.scalar_type());
  }
}

void check_root(int64_t root, int world_size, const char* what) {
  TORCH_CHECK_VALUE(0 <= root && root < world_size, what, ": there is no rank ", root, " among ",
                    world_size);
}

void check_count(const std::vector<at::Tensor>& tensors, int world_size, const char* what) {
  TORCH_CHECK_VALUE(tensors.size() == static_cast<size_t>(world_size), what, " takes a list of ",
                    world_size, " tensors, one per rank, not ", tensors.size());
}

SharedPiece piece_of(std::vector<at::Tensor> tensors, Content content) {
  return std::make_shared<Piece>(std::move(tensors), content);
}

SharedPiece addend_of(std::vector<at::Tensor> tensors, const c10d::ReduceOp& op) {
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return piece_of(std::move(tensors), Content::kKept);
  auto piece = piece_of(std::move(tensors), Content::kDetached);
  const auto* factor = dynamic_cast<c10d::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(factor != nullptr, "PREMUL_SUM without its factor");
  at::Tensor values = piece->temporary();
  if (factor->tensor_factor.defined())
    values.mul_(factor->tensor_factor);
  else
    values.mul_(factor->double_factor);
  return piece;
}

SharedPiece room_for(std::vector<at::Tensor> tensors, const Piece& in) {
  auto piece = piece_of(tensors, Content::kUnset);
  if (!overlap(piece->bytes(), in.bytes())) return piece;
  return piece_of(std::move(tensors), Content::kDetached);
}

Reduction reduction_for(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const auto reduction = reduction_of(tensor.scalar_type(), op.op_);
  TORCH_CHECK_NOT_IMPLEMENTED(reduction.has_value(), "the backend yard: ",
                              reduction ? std::string() : reduction.error().message);
  return *reduction;
}

bool same_element_counts(const std::vector<at::Tensor>& tensors, int64_t count) {
  return std::ranges::all_of(tensors, [&](const auto& tensor) { return tensor.numel() == count; });
}

}  // namespace yard::process_group
