// YardBackend: torch.distributed over yard's collectives, for CPU tensors.
//
// What torch calls a backend: the collectives of one process group. Where a group of Gloo's has an
// operation, so has this one, with the same results; besides: averages, sums of scaled values
// (PREMUL_SUM), lists of tensors of different sizes, truth values, unsigned and complex numbers.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/result.h"
#include "base/stop_token.h"
#include "process_group/rank_names.h"
#include "process_group/store_rendezvous.h"

namespace yard::process_group {

class Session;
struct Call;
struct Parts;

struct BackendOptions {
  StorePlace place;
  std::string group_name;
  std::vector<int64_t> global_ranks;  // of the members; empty: all ranks of the job
};

// Thread-safe; operations have to be issued in the same order on all ranks, send and receive aside.
// Failures of the world are c10::DistBackendError (in Python torch.distributed.DistBackendError):
// a rank that died or called something else, a time-out, a group that was destroyed. Arguments that
// cannot be are c10::Error (RuntimeError), c10::NotImplementedError where torch has a type or a
// layout that has no reduction.
class YardBackend final : public c10d::Backend {
 public:
  // As connect_through().
  static Result<c10::intrusive_ptr<YardBackend>> create(
      const c10::intrusive_ptr<c10d::Store>& store, const BackendOptions& options,
      const StopToken& stop);

  using Work = c10::intrusive_ptr<c10d::Work>;
  using Tensor = at::Tensor;
  using Tensors = std::vector<at::Tensor>;
  using Lists = std::vector<Tensors>;
  using Sizes = std::vector<int64_t>;

  // `hosts`: the name of each rank's, for errors.
  YardBackend(Connection connection, c10::intrusive_ptr<c10d::Store> store,
              std::vector<std::string> hosts, const BackendOptions& options);
  ~YardBackend() override;

  const std::string getBackendName() const override { return "yard"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override;
  c10d::ErrorType getError() override;
  void startCoalescing() override;
  Work endCoalescing() override;
  void abort() override;
  void shutdown() override;

  // CPU tensors in memory that the ranks of a host share, so that operations on them move nothing
  // in and out of it: DDP asks for its buckets. Such an allocation is an operation of the group:
  // all ranks make it, of the same size. The tensor may outlive the group. Of other devices:
  // ordinary memory.
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }

  // After a failure: this rank's backend of a group of those that live, and their ranks in this
  // one, in order. As collective::Group::shrink(), whose Errors are DistBackendError here. The
  // other backend has this one's store, which may have died with its process: see use_store().
  struct Shrunk;
  Shrunk shrink_to_survivors(const collective::ShrinkOptions& options);
  // Before there are operations.
  void use_store(c10::intrusive_ptr<c10d::Store> store) { store_ = std::move(store); }

  // torch.distributed.shrink_group(): without those ranks. DistBackendError, too, when others than
  // those have been lost.
  bool supportsShrinking() const override { return true; }
  c10::intrusive_ptr<Backend> shrink(const std::vector<int64_t>& ranks_to_exclude, int shrink_flags,
                                     const c10::intrusive_ptr<Options>& opts_override) override;

  // The last operations of this rank, oldest first; none once the group was destroyed.
  std::vector<collective::FlightRecord> flight() const;

  Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Work allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Work allreduce_coalesced(Tensors& tensors,
                           const c10d::AllreduceCoalescedOptions& options) override;
  Work reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Work allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Work _allgather_base(Tensor& output, Tensor& input,
                       const c10d::AllgatherOptions& options) override;
  Work allgather_coalesced(Lists& outputs, Tensors& inputs,
                           const c10d::AllgatherOptions& options) override;
  Work allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::AllgatherOptions& options) override;
  Work gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Work scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) override;
  Work reduce_scatter(Tensors& outputs, Lists& inputs,
                      const c10d::ReduceScatterOptions& options) override;
  Work _reduce_scatter_base(Tensor& output, Tensor& input,
                            const c10d::ReduceScatterOptions& options) override;
  Work reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::ReduceScatterOptions& options) override;
  Work alltoall_base(Tensor& output, Tensor& input, Sizes& output_sizes, Sizes& input_sizes,
                     const c10d::AllToAllOptions& options) override;
  Work alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  Work send(Tensors& tensors, int to, int tag) override;
  Work recv(Tensors& tensors, int from, int tag) override;
  Work recvAnysource(Tensors& tensors, int tag) override;
  Work barrier(const c10d::BarrierOptions& options) override;
  // Over the store, not the group: who is missing is told also when it never comes. Rank 0 waits
  // for all, the others for its word.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

 private:
  Call call(c10d::OpType type, const char* title, Tensors inputs,
            std::chrono::milliseconds timeout = c10d::kUnsetTimeout) const;
  Work gather_different(const Tensors& outputs, const Tensor& input, Call call);
  Work reduce_scatter_different(const Tensor& output, const Tensors& inputs,
                                const c10d::ReduceScatterOptions& options);
  Work receive(Tensors& tensors, int from, int tag);
  std::vector<int> await_ranks(const std::string& key, std::chrono::milliseconds timeout,
                               bool wait_all_ranks);

  c10::intrusive_ptr<c10d::Store> store_;
  const BackendOptions place_;
  const c10::intrusive_ptr<Options> options_;
  const std::string connection_id_;
  const RankNames names_;
  const std::chrono::milliseconds group_timeout_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<uint64_t> monitored_count_ = 0;
  const std::shared_ptr<Session> session_;
};

struct YardBackend::Shrunk {
  c10::intrusive_ptr<YardBackend> backend;
  std::vector<int64_t> ranks;
};

}  // namespace yard::process_group
