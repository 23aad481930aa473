// How long a step takes on many ranks, predicted from one rank's measure and a model of the links.
//
// All-reduce in a hierarchy: reduce-scatter and all-gather among the ranks of a host, rings of the
// hosts between them (Jia et al. 2018, "Highly scalable deep learning training system"; the alpha
// and beta model of Thakur et al. 2005). Gradients go in buckets while the last micro-batch's
// backward pass goes on. Ranks that take longer by chance are waited for. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace yard::loop {

struct LinkModel {
  double bytes_per_s = 0;
  double latency_s = 0;
};

struct ClusterModel {
  std::vector<int64_t> hosts;  // by stage; the last one for all that follow
  int64_t ranks_per_host = 1;
  LinkModel inside{100e9, 5e-6};    // of each rank of a host
  LinkModel between{12.5e9, 2e-5};  // of a host, shared by its ranks
  double speed = 1;                 // of a rank, as a multiple of the measured one
  double host_price_per_hour = 0;
  bool batch_grows = false;  // each rank keeps the share that it was measured with

  int64_t hosts_of(size_t stage) const { return hosts[std::min(stage, hosts.size() - 1)]; }
};

// "hosts=4:8:16,gpus=8,inside=300GB/s,inside_latency=3us,between=50GB/s,between_latency=20us,
// speed=30,price=12.5,batch=grows". kInvalidArgument names the key.
Result<ClusterModel> parse_cluster(std::string_view text);

// One stage on one rank, measured.
struct MeasuredStage {
  std::string name;
  int64_t steps = 0;
  int64_t batch = 0;         // of all ranks
  int64_t micro_batch = 0;   // that was measured
  double micro_batch_s = 0;  // forward and backward
  double micro_batch_deviation_s = 0;
  double optimizer_s = 0;
  uint64_t gradient_bytes = 0;
  uint64_t bucket_bytes = 0;
};

struct PredictedStage {
  int64_t ranks = 0;
  int64_t batch = 0;
  int64_t micro_batch = 0;
  int64_t micro_batch_count = 0;  // of a rank and step
  double compute_s = 0;           // of a step
  double communication_s = 0;     // of a step, whether or not it is hidden
  double exposed_s = 0;           // of that, what computing does not hide
  double straggler_s = 0;
  double step_s = 0;
  double efficiency = 0;  // compute_s / step_s
  double hours = 0;
  double cost = 0;
};

// kInvalidArgument: a batch that so many ranks cannot share (says what would fit).
Result<PredictedStage> predict(const MeasuredStage& stage, size_t stage_index,
                               const ClusterModel& cluster);

// A table of all stages with their sums.
std::string to_table(const std::vector<MeasuredStage>& measured,
                     const std::vector<PredictedStage>& predicted);

}  // namespace yard::loop
