// The operations of YardBackend that compute.
#include <ATen/core/grad_mode.h>

#include "process_group/arguments_internal.h"
#include "process_group/backend.h"
#include "process_group/session_internal.h"

namespace yard::process_group {

using c10d::OpType;
using collective::Group;

YardBackend::Work YardBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const Tensor& tensor = only(tensors, "all_reduce");
  if (tensor.is_sparse()) return allreduce_sparse(tensors, options);
  check(tensors, "all_reduce");
  const Reduction to = reduction_for(tensor, options.reduceOp);
  const auto piece = addend_of(tensors, options.reduceOp);
  return session_->issue(call(OpType::ALLREDUCE, "yard:all_reduce", tensors, options.timeout),
                         {.finish = [piece] { piece->spread(); }, .outputs = tensors},
                         [&](Group& group, Parts& parts) {
                           parts.works.push_back(group.all_reduce(piece->bytes(), to.dtype, to.op));
                         });
}

YardBackend::Work YardBackend::allreduce_coalesced(Tensors& tensors,
                                                   const c10d::AllreduceCoalescedOptions& options) {
  TORCH_CHECK_VALUE(!tensors.empty(), "all_reduce_coalesced of no tensors");
  check(tensors, "all_reduce_coalesced");
  const Reduction to = reduction_for(tensors[0], options.reduceOp);
  std::vector<SharedPiece> pieces;
  std::vector<std::span<std::byte>> spans;
  for (const Tensor& tensor : tensors) {
    pieces.push_back(addend_of({tensor}, options.reduceOp));
    spans.push_back(pieces.back()->bytes());
  }
  const auto finish = [pieces] {
    for (const SharedPiece& piece : pieces) piece->spread();
  };
  return session_->issue(
      call(OpType::ALLREDUCE_COALESCED, "yard:all_reduce_coalesced", tensors, options.timeout),
      {.finish = finish, .outputs = tensors}, [&](Group& group, Parts& parts) {
        parts.works.push_back(group.all_reduce_coalesced(std::move(spans), to.dtype, to.op));
      });
}

YardBackend::Work YardBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const Tensor& tensor = only(tensors, "reduce");
  check(tensors, "reduce");
  check_root(options.rootRank, size_, "reduce");
  const Reduction to = reduction_for(tensor, options.reduceOp);
  const int root = static_cast<int>(options.rootRank);
  const auto piece = addend_of(tensors, options.reduceOp);
  const auto finish = [piece, is_root = root == rank_] {
    if (is_root) piece->spread();
  };
  return session_->issue(
      call(OpType::REDUCE, "yard:reduce", tensors, options.timeout),
      {.finish = finish, .outputs = tensors}, [&](Group& group, Parts& parts) {
        parts.works.push_back(group.reduce(piece->bytes(), to.dtype, to.op, root));
      });
}

YardBackend::Work YardBackend::_reduce_scatter_base(Tensor& output, Tensor& input,
                                                    const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

YardBackend::Work YardBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(!outputs.empty() && outputs.size() == inputs.size(), "reduce_scatter of ",
                    inputs.size(), " inputs into ", outputs.size());
  std::vector<SharedPiece> ins;
  std::vector<SharedPiece> outs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    check({outputs[i], inputs[i]}, "reduce_scatter");
    TORCH_CHECK_VALUE(inputs[i].numel() == outputs[i].numel() * size_, "reduce_scatter of ",
                      inputs[i].numel(), " elements into ", outputs[i].numel(), " on each of ",
                      size_, " ranks");
    ins.push_back(addend_of({inputs[i]}, options.reduceOp));
    outs.push_back(room_for({outputs[i]}, *ins.back()));
  }
  const auto finish = [ins, outs] {
    for (const SharedPiece& out : outs) out->spread();
  };
  return session_->issue(
      call(OpType::_REDUCE_SCATTER_BASE, "yard:reduce_scatter", inputs, options.timeout),
      {.finish = finish, .outputs = outputs}, [&](Group& group, Parts& parts) {
        for (size_t i = 0; i < outs.size(); ++i) {
          const Reduction to = reduction_for(inputs[i], options.reduceOp);
          parts.works.push_back(
              group.reduce_scatter(ins[i]->bytes(), outs[i]->bytes(), to.dtype, to.op));
        }
      });
}

YardBackend::Work YardBackend::reduce_scatter(Tensors& outputs, Lists& inputs,
                                              const c10d::ReduceScatterOptions& options) {
  const Tensor& output = only(outputs, "reduce_scatter");
  const Tensors& list = only(inputs, "reduce_scatter");
  check_count(list, size_, "reduce_scatter");
  check(list, "reduce_scatter");
  check({output, list[0]}, "reduce_scatter");
  if (!same_element_counts(list, output.numel()))
    return reduce_scatter_different(output, list, options);
  const Reduction to = reduction_for(output, options.reduceOp);
  const auto in = addend_of(list, options.reduceOp);
  const auto out = room_for({output}, *in);
  return session_->issue(
      call(OpType::REDUCE_SCATTER, "yard:reduce_scatter", list, options.timeout),
      {.finish = [in, out] { out->spread(); }, .outputs = outputs},
      [&](Group& group, Parts& parts) {
        parts.works.push_back(group.reduce_scatter(in->bytes(), out->bytes(), to.dtype, to.op));
      });
}

// Tensors of different sizes: each is reduced to the rank that is to have it.
YardBackend::Work YardBackend::reduce_scatter_different(const Tensor& output, const Tensors& inputs,
                                                        const c10d::ReduceScatterOptions& options) {
  const auto own = static_cast<size_t>(rank_);
  TORCH_CHECK_VALUE(inputs[own].numel() == output.numel(), "reduce_scatter of ",
                    inputs[own].numel(), " elements for rank ", rank_, " into ", output.numel());
  const Reduction to = reduction_for(output, options.reduceOp);
  const bool is_scaled = options.reduceOp.op_ == c10d::ReduceOp::PREMUL_SUM;
  std::vector<SharedPiece> pieces;
  for (const Tensor& input : inputs)
    pieces.push_back(is_scaled ? addend_of({input}, options.reduceOp)
                               : piece_of({input}, Content::kDetached));
  const auto finish = [pieces, own, output] {
    const at::NoGradGuard no_grad;
    at::Tensor(output).copy_(pieces[own]->temporary().view(output.sizes()));
  };
  return session_->issue(
      call(OpType::REDUCE_SCATTER, "yard:reduce_scatter", inputs, options.timeout),
      {.finish = finish, .outputs = {output}}, [&](Group& group, Parts& parts) {
        for (int root = 0; root < size_; ++root)
          parts.works.push_back(
              group.reduce(pieces[static_cast<size_t>(root)]->bytes(), to.dtype, to.op, root));
      });
}

}  // namespace yard::process_group
