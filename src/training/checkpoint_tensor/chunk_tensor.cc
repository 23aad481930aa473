#include "checkpoint_tensor/chunk_tensor.h"

#include <c10/core/ScalarType.h>

#include "tensor/host_tensor.h"

namespace yard::checkpoint {
namespace {

Shape shape_of(const at::Tensor& tensor) {
  Shape shape;
  for (const int64_t side : tensor.sizes()) shape.push_back(static_cast<uint64_t>(side));
  return shape;
}

}  // namespace

std::string_view checkpoint_dtype(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return "F64";
    case at::kFloat:
      return "F32";
    case at::kHalf:
      return "F16";
    case at::kBFloat16:
      return "BF16";
    case at::kFloat8_e4m3fn:
      return "F8_E4M3";
    case at::kFloat8_e5m2:
      return "F8_E5M2";
    case at::kLong:
      return "I64";
    case at::kInt:
      return "I32";
    case at::kShort:
      return "I16";
    case at::kChar:
      return "I8";
    case at::kByte:
      return "U8";
    case at::kBool:
      return "BOOL";
    default:
      return {};
  }
}

Result<TensorTarget> chunk_target(const std::string& name, const at::Tensor& local, Shape shape,
                                  Region region) {
  const auto refuse = [&](const std::string& why) {
    return Error{Code::kInvalidArgument, "tensor '" + name + "': " + why};
  };
  if (!local.defined() || !local.device().is_cpu() || !local.is_contiguous())
    return refuse("is not contiguous on the CPU");
  const std::string dtype(checkpoint_dtype(local.scalar_type()));
  if (dtype.empty())
    return refuse(std::string("dtype ") + c10::toString(local.scalar_type()) + " cannot be stored");
  TensorTarget target{name, {dtype, std::move(shape)}, std::move(region), {}};
  Status valid = check_tensor(target.info);
  if (valid) valid = check_region(target.region, target.info.shape);
  if (!valid) return refuse(valid.error().message);
  if (chunk_bytes(target.info, target.region) != local.nbytes())
    return refuse("has another number of elements than its chunk");
  target.bytes = tensor::bytes_of(local);
  return target;
}

Result<TensorView> chunk_view(const std::string& name, const at::Tensor& local, Shape shape,
                              Region region) {
  YARD_ASSIGN(TensorTarget target, chunk_target(name, local, std::move(shape), std::move(region)));
  return TensorView{std::move(target.name), std::move(target.info), std::move(target.region),
                    target.bytes};
}

Result<TensorTarget> chunk_target(const std::string& name, const at::Tensor& whole) {
  if (!whole.defined())
    return Error{Code::kInvalidArgument, "tensor '" + name + "': is not contiguous on the CPU"};
  return chunk_target(name, whole, shape_of(whole), Region::all());
}

Result<TensorView> chunk_view(const std::string& name, const at::Tensor& whole) {
  if (!whole.defined())
    return Error{Code::kInvalidArgument, "tensor '" + name + "': is not contiguous on the CPU"};
  return chunk_view(name, whole, shape_of(whole), Region::all());
}

}  // namespace yard::checkpoint
