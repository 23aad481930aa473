// Slices: parts of one machine that jobs get as hosts. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace yard::jobs {

// What an instance type means on this machine.
struct InstanceShape {
  std::string type;
  int core_count = 0;         // 0: all of the machine's
  int gpu_count = -1;         // -1: all of the machine's
  uint64_t memory_bytes = 0;  // a limit; 0: none
  double price_per_hour = 0;
  bool is_shared = true;    // its cores and GPUs may be in other slices, too
  int slice_count_max = 0;  // at once; 0: no limit but the machine's
};

struct SliceConfig {
  std::vector<int> machine_cores;
  std::vector<int> machine_gpus;
  uint64_t machine_memory_bytes = 0;  // 0: unknown, not counted
  int slice_count_max = 16;           // at once, of all types
  std::vector<InstanceShape> shapes;
  InstanceShape default_shape;     // of every type that has no shape
  std::vector<int> faulty_slices;  // these fail their health check: for tests
};

struct Slice {
  int number = 0;  // from 1; no two at once have the same
  std::string instance_type;
  std::vector<int> cores;
  std::vector<int> gpus;
  uint64_t memory_bytes = 0;
  double price_per_hour = 0;
  bool is_shared = true;
  bool operator==(const Slice&) const = default;
};

const InstanceShape& shape_of(const SliceConfig& config, std::string_view instance_type);

// A slice for each of `instance_types`, beside those that are `held`; numbers in `avoid` are not
// used. All or none. kExhausted: not now. kInvalidArgument: not on this machine if it were empty,
// the first type that does not fit named.
Result<std::vector<Slice>> place_slices(const SliceConfig& config, const std::vector<Slice>& held,
                                        const std::vector<std::string>& instance_types,
                                        const std::vector<int>& avoid);
bool is_declared_faulty(const SliceConfig& config, int number);

}  // namespace yard::jobs
