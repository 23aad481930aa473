// The sum of sparse tensors: gradients of embeddings.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "process_group/arguments_internal.h"
#include "process_group/backend.h"
#include "process_group/session_internal.h"

namespace yard::process_group {
namespace {

// The first `count` of `rows` rows that are all there is; the rest is zero.
at::Tensor padded(const at::Tensor& tensor, int64_t dimension, int64_t count) {
  auto sizes = tensor.sizes().vec();
  const auto at = static_cast<size_t>(dimension);
  const int64_t filled = sizes[at];
  sizes[at] = count;
  at::Tensor out = at::zeros(sizes, tensor.options());
  out.narrow(dimension, 0, filled).copy_(tensor);
  return out;
}

}  // namespace

// Two rounds, both done when this returns: how many values each rank has, then the values. Every
// rank adds all of them in the order of ranks, so that all have the same bits.
YardBackend::Work YardBackend::allreduce_sparse(Tensors& tensors,
                                                const c10d::AllreduceOptions& options) {
  Tensor& tensor = only(tensors, "all_reduce");
  TORCH_CHECK(tensor.device().is_cpu(), "all_reduce: the backend yard takes CPU tensors, not ",
              tensor.device());
  TORCH_CHECK_NOT_IMPLEMENTED(options.reduceOp.op_ == c10d::ReduceOp::SUM,
                              "all_reduce of sparse tensors is a sum");
  const at::NoGradGuard no_grad;
  const Tensor own = tensor.coalesce();
  const c10d::AllgatherOptions gather{.timeout = options.timeout};
  Tensor own_count = at::full({1}, own._nnz(), at::kLong);
  Tensor counts = at::zeros({size_}, at::kLong);
  _allgather_base(counts, own_count, gather)->wait();
  const int64_t most = counts.max().item<int64_t>();

  Tensor own_indices = padded(own._indices(), 1, most).t().contiguous();  // a row per value
  Tensor own_values = padded(own._values(), 0, most);
  Tensor indices = own_indices.new_empty({size_ * most, own.sparse_dim()});
  auto value_sizes = own_values.sizes().vec();
  value_sizes[0] *= size_;
  Tensor values = own_values.new_empty(value_sizes);
  Tensors outputs{indices, values};
  Tensors inputs{own_indices, own_values};
  for (size_t i = 0; i < outputs.size(); ++i)
    _allgather_base(outputs[i], inputs[i], gather)->wait();

  Tensors index_parts;
  Tensors value_parts;
  for (int64_t rank = 0; rank < size_; ++rank) {
    const int64_t count = counts[rank].item<int64_t>();
    index_parts.push_back(indices.narrow(0, rank * most, count));
    value_parts.push_back(values.narrow(0, rank * most, count));
  }
  tensor.copy_(at::sparse_coo_tensor(at::cat(index_parts).t(), at::cat(value_parts), tensor.sizes(),
                                     own.options())
                   .coalesce());
  return session_->issue(call(c10d::OpType::_ALLREDUCE_SPARSE, "yard:all_reduce", {}),
                         {.outputs = tensors}, [](collective::Group&, Parts&) {});
}

}  // namespace yard::process_group
