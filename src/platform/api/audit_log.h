// AuditLog: who changed what, one JSON object per line. What only reads is not in it, and no value
// of a request is: names of jobs, buckets and operations, never a secret.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/file.h"
#include "base/result.h"

namespace yard::api {

struct AuditEntry {
  std::string user;  // empty: nobody that we know
  std::string access_key;
  std::string address;    // "127.0.0.1:40112"
  std::string service;    // "sagemaker"
  std::string operation;  // "CreateTrainingJob"; for S3 the method: "PUT"
  std::string resource;   // a job's name; for S3 the path
  std::string outcome;  // "ok", "allowed" (S3: its own answer follows), or AWS's name of the error
  std::string request_id;
};

// Thread-safe.
class AuditLog {
 public:
  struct Options {
    std::string path;
    uint64_t size_bytes_max = uint64_t{64} << 20;  // then it becomes PATH.1, and that PATH.2
    int kept_count = 5;                            // older ones are removed
  };
  // Mode 0600. As of open(2).
  static Result<std::unique_ptr<AuditLog>> open(Options options, const Clock& clock);

  // On failure the log of the process says so; the request goes on.
  void write(const AuditEntry& entry);

 private:
  AuditLog(Options options, const Clock& clock) : options_(std::move(options)), clock_(clock) {}
  Status open_file();
  void rotate();

  const Options options_;
  const Clock& clock_;
  std::mutex mutex_;
  UniqueFd file_;
  uint64_t size_bytes_ = 0;
};

}  // namespace yard::api
