// The operations of YardBackend that move values among all ranks.
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>

#include "process_group/arguments_internal.h"
#include "process_group/backend.h"
#include "process_group/session_internal.h"

namespace yard::process_group {
namespace {

using c10d::OpType;
using collective::Group;

// The bytes of each rank's share of a tensor that is split along its first dimension; no sizes:
// evenly.
std::vector<size_t> shares_of(const at::Tensor& tensor, const std::vector<int64_t>& sizes,
                              int world_size) {
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (sizes.empty()) {
    TORCH_CHECK_VALUE(rows % world_size == 0, "all_to_all: a first dimension of ", rows,
                      " is not a multiple of ", world_size, " ranks; name the split sizes");
    return std::vector<size_t>(static_cast<size_t>(world_size), tensor.nbytes() / world_size);
  }
  TORCH_CHECK_VALUE(sizes.size() == static_cast<size_t>(world_size), "all_to_all: ", sizes.size(),
                    " split sizes for ", world_size, " ranks");
  TORCH_CHECK_VALUE(std::ranges::all_of(sizes, [](int64_t size) { return size >= 0; }) &&
                        std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == rows,
                    "all_to_all: the split sizes are not those of a first dimension of ", rows);
  const size_t row_bytes = rows == 0 ? 0 : tensor.nbytes() / static_cast<size_t>(rows);
  std::vector<size_t> shares;
  for (const int64_t size : sizes) shares.push_back(static_cast<size_t>(size) * row_bytes);
  return shares;
}

std::vector<std::span<std::byte>> cut(std::span<std::byte> bytes,
                                      const std::vector<size_t>& shares) {
  std::vector<std::span<std::byte>> parts;
  for (const size_t share : shares) {
    parts.push_back(bytes.first(share));
    bytes = bytes.subspan(share);
  }
  return parts;
}

std::vector<std::span<const std::byte>> as_read(const std::vector<std::span<std::byte>>& spans) {
  return {spans.begin(), spans.end()};
}

}  // namespace

YardBackend::Work YardBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  only(tensors, "broadcast");
  check(tensors, "broadcast");
  check_root(options.rootRank, size_, "broadcast");
  const int root = static_cast<int>(options.rootRank);
  const bool is_root = root == rank_;
  const auto piece = piece_of(tensors, is_root ? Content::kKept : Content::kUnset);
  const auto finish = [piece, is_root] {
    if (!is_root) piece->spread();
  };
  return session_->issue(call(OpType::BROADCAST, "yard:broadcast", tensors, options.timeout),
                         {.finish = finish, .outputs = tensors}, [&](Group& group, Parts& parts) {
                           parts.works.push_back(group.broadcast(piece->bytes(), root));
                         });
}

YardBackend::Work YardBackend::_allgather_base(Tensor& output, Tensor& input,
                                               const c10d::AllgatherOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

YardBackend::Work YardBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(!outputs.empty() && outputs.size() == inputs.size(), "all_gather of ",
                    inputs.size(), " inputs into ", outputs.size());
  std::vector<SharedPiece> ins;
  std::vector<SharedPiece> outs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    check({outputs[i], inputs[i]}, "all_gather");
    TORCH_CHECK_VALUE(outputs[i].numel() == inputs[i].numel() * size_, "all_gather of ",
                      inputs[i].numel(), " elements of each of ", size_, " ranks into ",
                      outputs[i].numel());
    ins.push_back(piece_of({inputs[i]}, Content::kKept));
    outs.push_back(piece_of({outputs[i]}, Content::kUnset));
  }
  const auto finish = [ins, outs] {
    for (const SharedPiece& out : outs) out->spread();
  };
  return session_->issue(
      call(OpType::_ALLGATHER_BASE, "yard:all_gather", inputs, options.timeout),
      {.finish = finish, .outputs = outputs}, [&](Group& group, Parts& parts) {
        for (size_t i = 0; i < outs.size(); ++i)
          parts.works.push_back(group.all_gather(ins[i]->bytes(), outs[i]->bytes()));
      });
}

YardBackend::Work YardBackend::allgather(Lists& outputs, Tensors& inputs,
                                         const c10d::AllgatherOptions& options) {
  Call call = this->call(OpType::ALLGATHER, "yard:all_gather", inputs, options.timeout);
  const Tensor& input = only(inputs, "all_gather");
  const Tensors& list = only(outputs, "all_gather");
  check_count(list, size_, "all_gather");
  check(list, "all_gather");
  check({input, list[0]}, "all_gather");
  if (!same_element_counts(list, input.numel()))
    return gather_different(list, input, std::move(call));
  const auto in = piece_of({input}, Content::kKept);
  const auto out = piece_of(list, Content::kUnset);
  return session_->issue(std::move(call), {.finish = [in, out] { out->spread(); }, .outputs = list},
                         [&](Group& group, Parts& parts) {
                           parts.works.push_back(group.all_gather(in->bytes(), out->bytes()));
                         });
}

// Tensors of different sizes: each is broadcast by the rank that has it.
YardBackend::Work YardBackend::gather_different(const Tensors& outputs, const Tensor& input,
                                                Call call) {
  const auto own = static_cast<size_t>(rank_);
  TORCH_CHECK_VALUE(outputs[own].numel() == input.numel(), "all_gather of ", input.numel(),
                    " elements of rank ", rank_, " into ", outputs[own].numel());
  std::vector<SharedPiece> pieces;
  for (size_t i = 0; i < outputs.size(); ++i)
    pieces.push_back(i == own ? piece_of({input}, Content::kDetached)
                              : piece_of({outputs[i]}, Content::kUnset));
  const auto finish = [pieces, own, output = outputs[own]] {
    for (size_t i = 0; i < pieces.size(); ++i)
      if (i != own) pieces[i]->spread();
    const at::NoGradGuard no_grad;
    at::Tensor(output).copy_(pieces[own]->temporary().view(output.sizes()));
  };
  return session_->issue(
      std::move(call), {.finish = finish, .outputs = outputs}, [&](Group& group, Parts& parts) {
        for (int root = 0; root < size_; ++root)
          parts.works.push_back(group.broadcast(pieces[static_cast<size_t>(root)]->bytes(), root));
      });
}

// outputs[r][i] = input i of rank r.
YardBackend::Work YardBackend::allgather_coalesced(Lists& outputs, Tensors& inputs,
                                                   const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == static_cast<size_t>(size_), "all_gather_coalesced into ",
                    outputs.size(), " lists on ", size_, " ranks");
  std::vector<SharedPiece> ins;
  std::vector<SharedPiece> outs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors list;
    for (const Tensors& of_rank : outputs) {
      TORCH_CHECK_VALUE(of_rank.size() == inputs.size(), "all_gather_coalesced of ", inputs.size(),
                        " tensors into lists of ", of_rank.size());
      list.push_back(of_rank[i]);
    }
    check(list, "all_gather_coalesced");
    check({inputs[i], list[0]}, "all_gather_coalesced");
    TORCH_CHECK_VALUE(same_element_counts(list, inputs[i].numel()),
                      "all_gather_coalesced into tensors of other sizes");
    ins.push_back(piece_of({inputs[i]}, Content::kKept));
    outs.push_back(piece_of(std::move(list), Content::kUnset));
  }
  const auto finish = [ins, outs] {
    for (const SharedPiece& out : outs) out->spread();
  };
  Parts parts{.finish = finish};
  for (const Tensors& of_rank : outputs)
    parts.outputs.insert(parts.outputs.end(), of_rank.begin(), of_rank.end());
  return session_->issue(
      call(OpType::ALLGATHER_COALESCED, "yard:all_gather_coalesced", inputs, options.timeout),
      std::move(parts), [&](Group& group, Parts& started) {
        for (size_t i = 0; i < outs.size(); ++i)
          started.works.push_back(group.all_gather(ins[i]->bytes(), outs[i]->bytes()));
      });
}

YardBackend::Work YardBackend::gather(Lists& outputs, Tensors& inputs,
                                      const c10d::GatherOptions& options) {
  const Tensor& input = only(inputs, "gather");
  check(inputs, "gather");
  check_root(options.rootRank, size_, "gather");
  const int root = static_cast<int>(options.rootRank);
  const Tensors list = root == rank_ ? only(outputs, "gather") : Tensors();
  if (root == rank_) {
    check_count(list, size_, "gather");
    check(list, "gather");
    check({input, list[0]}, "gather");
    TORCH_CHECK_VALUE(same_element_counts(list, input.numel()),
                      "gather into tensors of other sizes than ", input.numel(), " elements");
  }
  const auto in = piece_of({input}, Content::kKept);
  const auto out = piece_of(list, Content::kUnset);
  return session_->issue(call(OpType::GATHER, "yard:gather", inputs, options.timeout),
                         {.finish = [in, out] { out->spread(); }, .outputs = list},
                         [&](Group& group, Parts& parts) {
                           parts.works.push_back(group.gather(in->bytes(), out->bytes(), root));
                         });
}

YardBackend::Work YardBackend::scatter(Tensors& outputs, Lists& inputs,
                                       const c10d::ScatterOptions& options) {
  const Tensor& output = only(outputs, "scatter");
  check(outputs, "scatter");
  check_root(options.rootRank, size_, "scatter");
  const int root = static_cast<int>(options.rootRank);
  const Tensors list = root == rank_ ? only(inputs, "scatter") : Tensors();
  if (root == rank_) {
    check_count(list, size_, "scatter");
    check(list, "scatter");
    check({output, list[0]}, "scatter");
    TORCH_CHECK_VALUE(same_element_counts(list, output.numel()),
                      "scatter of tensors of other sizes than ", output.numel(), " elements");
  }
  const auto in = piece_of(list, Content::kKept);
  const auto out = room_for({output}, *in);
  return session_->issue(call(OpType::SCATTER, "yard:scatter", list, options.timeout),
                         {.finish = [in, out] { out->spread(); }, .outputs = outputs},
                         [&](Group& group, Parts& parts) {
                           parts.works.push_back(group.scatter(in->bytes(), out->bytes(), root));
                         });
}

YardBackend::Work YardBackend::alltoall_base(Tensor& output, Tensor& input, Sizes& output_sizes,
                                             Sizes& input_sizes,
                                             const c10d::AllToAllOptions& options) {
  check({output, input}, "all_to_all");
  const auto in_shares = shares_of(input, input_sizes, size_);
  const auto out_shares = shares_of(output, output_sizes, size_);
  const auto in = piece_of({input}, Content::kKept);
  const auto out = room_for({output}, *in);
  return session_->issue(
      call(OpType::ALLTOALL_BASE, "yard:all_to_all", {input}, options.timeout),
      {.finish = [in, out] { out->spread(); }, .outputs = {output}},
      [&](Group& group, Parts& parts) {
        parts.works.push_back(
            group.all_to_all(as_read(cut(in->bytes(), in_shares)), cut(out->bytes(), out_shares)));
      });
}

YardBackend::Work YardBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                        const c10d::AllToAllOptions& options) {
  check_count(outputs, size_, "all_to_all");
  check_count(inputs, size_, "all_to_all");
  check(outputs, "all_to_all");
  check(inputs, "all_to_all");
  check({outputs[0], inputs[0]}, "all_to_all");
  std::vector<SharedPiece> pieces;
  std::vector<std::span<const std::byte>> ins;
  std::vector<std::span<std::byte>> outs;
  for (const Tensor& input : inputs) {
    pieces.push_back(piece_of({input}, Content::kKept));
    ins.emplace_back(pieces.back()->bytes());
  }
  for (const Tensor& output : outputs) {
    pieces.push_back(piece_of({output}, Content::kUnset));
    outs.push_back(pieces.back()->bytes());
  }
  const auto finish = [pieces, count = inputs.size()] {
    for (size_t i = count; i < pieces.size(); ++i) pieces[i]->spread();
  };
  return session_->issue(call(OpType::ALLTOALL, "yard:all_to_all", inputs, options.timeout),
                         {.finish = finish, .outputs = outputs}, [&](Group& group, Parts& parts) {
                           parts.works.push_back(group.all_to_all(std::move(ins), std::move(outs)));
                         });
}

}  // namespace yard::process_group
