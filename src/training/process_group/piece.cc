#include "process_group/piece.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <functional>

namespace yard::process_group {
namespace {

// Its values lie in memory as they are, in order.
bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

std::byte* memory_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

bool lie_in_one_piece(const std::vector<at::Tensor>& tensors) {
  const std::byte* next = nullptr;
  for (const at::Tensor& tensor : tensors) {
    if (!is_plain(tensor)) return false;
    if (tensor.numel() == 0) continue;
    if (next != nullptr && memory_of(tensor) != next) return false;
    next = memory_of(tensor) + tensor.nbytes();
  }
  return true;
}

std::byte* begin_of(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors)
    if (tensor.numel() != 0) return memory_of(tensor);
  return nullptr;
}

int64_t element_count(const std::vector<at::Tensor>& tensors) {
  int64_t count = 0;
  for (const at::Tensor& tensor : tensors) count += tensor.numel();
  return count;
}

}  // namespace

Piece::Piece(std::vector<at::Tensor> tensors, Content content) : tensors_(std::move(tensors)) {
  if (tensors_.empty()) return;
  const auto count = static_cast<size_t>(element_count(tensors_));
  const size_t size_bytes = count * tensors_[0].element_size();
  if (content != Content::kDetached && lie_in_one_piece(tensors_)) {
    bytes_ = {begin_of(tensors_), size_bytes};
    return;
  }
  temporary_ = at::empty({static_cast<int64_t>(count)}, tensors_[0].scalar_type());
  bytes_ = {memory_of(temporary_), size_bytes};
  if (content != Content::kUnset) copy_in();
}

at::Tensor Piece::part_of(const at::Tensor& tensor, int64_t offset) const {
  return temporary_.narrow(0, offset, tensor.numel()).view(tensor.sizes());
}

void Piece::copy_in() const {
  const at::NoGradGuard no_grad;
  int64_t offset = 0;
  for (const at::Tensor& tensor : tensors_) {
    part_of(tensor, offset).copy_(tensor);
    offset += tensor.numel();
  }
}

void Piece::spread() const {
  if (!is_temporary()) return;
  const at::NoGradGuard no_grad;
  int64_t offset = 0;
  for (const at::Tensor& tensor : tensors_) {
    // A handle of the same tensor: copy_ needs one that is not const.
    at::Tensor(tensor).copy_(part_of(tensor, offset));
    offset += tensor.numel();
  }
}

bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::less<const std::byte*> before;
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) &&
         before(b.data(), a.data() + a.size());
}

}  // namespace yard::process_group
