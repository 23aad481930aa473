// OwnLogs: the log groups that clients make for themselves, beside those of jobs.
//
// On disk: DIR/<hash of the group's name>/ with the name in `name`; in it `<hash>.name` and
// `<hash>.log` (logs/log_stream.h) for each stream.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"

namespace yard::api {

struct OwnLogName {
  std::string name;
  std::string path;  // of a stream: its file, which is there once something was put
  double created_t = 0;
};

struct OwnLogEvent {
  int64_t t_ms = 0;
  std::string text;
};

// Thread-safe. Codes: kNotFound (no such group or stream), kExhausted (there already; disk full).
class OwnLogs {
 public:
  // Makes the folder when something is created.
  explicit OwnLogs(std::string dir) : dir_(std::move(dir)) {}

  Status create_group(const std::string& group);
  Status create_stream(const std::string& group, const std::string& stream);
  Status remove_group(const std::string& group);
  Status remove_stream(const std::string& group, const std::string& stream);

  // By name.
  Result<std::vector<OwnLogName>> groups() const;
  Result<std::vector<OwnLogName>> streams(const std::string& group) const;
  Result<OwnLogName> stream(const std::string& group, const std::string& stream) const;

  // In the order given. Text of several lines becomes as many events; a time before that of the
  // stream's last event becomes that one's.
  Status put(const std::string& group, const std::string& stream,
             const std::vector<OwnLogEvent>& events);

 private:
  std::string group_dir(const std::string& group) const;
  Status check_group(const std::string& group) const;

  const std::string dir_;
  std::mutex mutex_;  // of everything that changes files
};

}  // namespace yard::api
