// JobFolder: where the files of a job lie (docs/formats/job.md), and the two ways they are written.
#pragma once

#include <string>
#include <string_view>

#include "base/file.h"
#include "base/result.h"
#include "jobs/job_spec.h"

namespace yard::host {

struct JobFolder {
  std::string dir;

  std::string spec() const { return dir + "/job.json"; }
  std::string recipe() const { return dir + "/recipe.yaml"; }
  std::string status() const { return dir + "/status.json"; }
  std::string ledger() const { return dir + "/ledger.json"; }
  std::string events() const { return dir + "/events.jsonl"; }
  std::string control() const { return dir + "/control"; }
  std::string output() const { return dir + "/output"; }
  std::string heartbeats() const { return dir + "/heartbeats"; }
  std::string heartbeat(int rank) const;
  std::string logs() const { return dir + "/logs"; }
  std::string job_log() const { return dir + "/logs/job.log"; }
  std::string supervisor_log() const { return dir + "/logs/supervisor.log"; }
  std::string rank_log(int rank) const;
};

// Makes the folder, its sub-folders and its control FIFO, and writes job.json last.
// kInvalidArgument: there is such a job already, or its parent cannot hold it.
Status create_job_folder(const JobFolder& folder, const jobs::JobSpec& spec);
// kNotFound: no such job; kInvalidArgument: its job.json is wrong.
Result<jobs::JobSpec> read_spec(const JobFolder& folder);

// Atomic for readers, but without fsync: for files that are written often and can be made again.
Status replace_file(const std::string& path, std::string_view content);
// One write(2) of `line` and a newline at the end of the file.
Status append_line(int fd, const std::string& path, std::string_view line);
Result<UniqueFd> open_for_append(const std::string& path);

// A word and a newline into the job's control FIFO. kUnavailable when no supervisor listens.
Status send_control(const JobFolder& folder, std::string_view word);

}  // namespace yard::host
