// Collectives over device memory: a Group whose bytes lie on a GPU, by NCCL.
//
//   YARD_ASSIGN(const auto nccl, collective::open_nccl(nccl_library(torch_folder())));
//   YARD_ASSIGN(const auto group, connect_devices(std::move(host_group), device, nccl));
//   group->all_reduce(device_bytes_of(gradient), DType::kF32, ReduceOp::kAverage);
//
// Nothing here knows CUDA: devices, streams and events are those that c10 has for the device's
// type.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "collective/collective.h"
#include "collective/symbols.h"

namespace yard::tensor {

// The folder of the libtorch that this process runs with.
std::string torch_folder();
// What open_nccl() is to open: the library of the torch wheel's own NCCL package, beside
// `torch_folder`; without one the name alone, which finds the one that libtorch has loaded, or the
// system's.
std::string nccl_library(const std::string& torch_folder);

// The bytes of a contiguous tensor on whatever device.
std::span<std::byte> device_bytes_of(const at::Tensor& tensor);

// As Group (collective/collective.h), over memory of `device`, with these differences. Operations
// run on a stream of their own, after what the caller's current stream had been given when they
// were issued. Work::wait() does not stop the host: it makes the current stream go on behind the
// operation, and buffers are borrowed until the stream has passed that point. NCCL does not see
// mismatched calls, nor promise the same bits from run to run. kInvalidArgument: i16, reductions
// of bits, send() and receive(), which it could not have beside collectives.
//
// A rank that dies, or aborts, is seen by the ranks' host group: NCCL's operations are given up at
// once, so that no stream hangs, and every later operation fails with the host group's error.
//
// Collective over `host`, which is kept. kNotFound: the library lacks a function; kInvalidArgument:
// this libtorch has no such device; kUnavailable: NCCL's own error, or a rank died.
Result<std::unique_ptr<collective::Group>> connect_devices(std::unique_ptr<collective::Group> host,
                                                           c10::Device device,
                                                           const collective::ResolveSymbol& nccl);

}  // namespace yard::tensor
