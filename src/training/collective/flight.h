// What the flight recorders of a job's ranks have written: who waits for whom.
//
// The file is a header and 512 slots in this machine's layout (flight_recorder_internal.h), written
// in place by the rank as long as it lives. It is for looking at on the machine that wrote it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "collective/collective.h"

namespace yard::collective {

struct FlightLog {
  int rank = 0;
  int world_size = 0;
  int64_t pid = 0;
  uint64_t generation = 0;
  int waited_rank = -1;  // for which it waits right now
  std::vector<FlightRecord> records;
};

// kNotFound; kCorrupt: not such a file, or of another version.
Result<FlightLog> read_flight(const std::string& path);

// The file of a rank in the folder of a job.
std::string flight_path(const std::string& job_dir, int rank);
// All of them that are there, by rank. kNotFound: none.
Result<std::vector<FlightLog>> read_flights(const std::string& job_dir);

// "ranks 0 and 1 wait in all_reduce #7 (...) for rank 2, whose last was barrier #6". Of the newest
// generation. Pure.
std::string diagnose(const std::vector<FlightLog>& logs);

}  // namespace yard::collective
