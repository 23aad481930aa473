// Piece: the elements of tensors as bytes in one piece, which is what collectives take.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <vector>

namespace yard::process_group {

enum class Content {
  kKept,      // the piece holds the tensors' values
  kUnset,     // it will be written
  kDetached,  // as kKept, but never the tensors' own memory
};

// The tensors' own memory where they lie there one after the other, each in the order of its
// elements; else a temporary. Keeps the tensors alive; not thread-safe. Throws c10::Error when
// memory is out.
class Piece {
 public:
  // CPU tensors of one type.
  Piece(std::vector<at::Tensor> tensors, Content content);

  std::span<std::byte> bytes() const { return bytes_; }
  bool is_temporary() const { return temporary_.defined(); }
  // The temporary, of one dimension; undefined without one.
  const at::Tensor& temporary() const { return temporary_; }
  // Writes the values of a temporary into the tensors.
  void spread() const;

 private:
  void copy_in() const;
  // The temporary's part that is the i-th tensor's, in its shape; `offset` in elements.
  at::Tensor part_of(const at::Tensor& tensor, int64_t offset) const;

  std::vector<at::Tensor> tensors_;
  at::Tensor temporary_;
  std::span<std::byte> bytes_;
};

// Whether the two share a byte.
bool overlap(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace yard::process_group
