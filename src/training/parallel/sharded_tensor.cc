#include "parallel/sharded_tensor.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <string_view>

#include "tensor/guard_torch.h"

namespace yard::parallel {

Status copy_pieces(const std::vector<models::NamedTensor>& from,
                   const std::vector<ShardedTensor>& to, const std::string& what) {
  const auto refuse = [&](const std::string& name, const std::string& why) {
    return Error{Code::kInvalidArgument, fmt::format("{}: tensor '{}' {}", what, name, why)};
  };
  std::map<std::string_view, const at::Tensor*> sources;
  for (const models::NamedTensor& t : from) sources.emplace(t.name, &t.tensor);
  std::map<std::string_view, bool> wanted;
  for (const ShardedTensor& t : to) {
    wanted.emplace(t.name, true);
    const auto it = sources.find(t.name);
    if (it == sources.end()) return refuse(t.name, "is missing");
    if (it->second->sizes() != t.shape)
      return refuse(t.name,
                    fmt::format("has shape [{}], the model wants [{}]",
                                fmt::join(it->second->sizes(), ", "), fmt::join(t.shape, ", ")));
  }
  for (const models::NamedTensor& t : from)
    if (!wanted.contains(t.name)) return refuse(t.name, "is not part of the model");
  return tensor::guard_torch("copying from " + what, [&]() -> Status {
    c10::NoGradGuard no_grad;
    for (const ShardedTensor& t : to) {
      const at::Tensor whole = sources.at(t.name)->reshape({-1});
      for (const TensorPiece& piece : t.pieces)
        at::Tensor(piece.values).copy_(whole.narrow(0, piece.begin, piece.values.numel()));
    }
    return Ok{};
  });
}

}  // namespace yard::parallel
