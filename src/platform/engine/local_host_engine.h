// LocalHostEngine: slices of this machine as hosts; a supervisor is a process that outlives us.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/subprocess.h"
#include "engine/host_engine.h"
#include "host/process.h"

namespace yard::engine {

struct LocalHostEngineOptions {
  std::string yard_program;
  std::map<std::string, std::string> env;  // of supervisors
  jobs::SliceConfig slices;
};

// Supervisors are found again by their folder's status.json and lock; while we run, a pidfd of each
// and inotify on its folder tell at once what happens.
class LocalHostEngine : public HostEngine {
 public:
  // kExhausted: no descriptors or inotify instances left.
  static Result<std::unique_ptr<LocalHostEngine>> open(LocalHostEngineOptions options);
  ~LocalHostEngine() override;

  Result<std::vector<jobs::Slice>> place(const std::vector<jobs::Slice>& held,
                                         const std::vector<std::string>& instance_types,
                                         const std::vector<int>& avoid) override;
  Status start(const std::string& dir, const jobs::Slice& slice,
               const std::string& kept_dir) override;
  HostLook look(const std::string& dir) override;
  Status send(const std::string& dir, std::string_view word) override;
  void kill(const std::string& dir) override;
  Status retire(const std::string& dir, int attempt) override;
  void forget(const std::string& dir) override;
  int fd() const override { return epoll_.get(); }
  std::vector<std::string> changed() override;

 private:
  struct Watch {
    std::unique_ptr<Subprocess> child;  // started by us, not reaped yet
    std::unique_ptr<Subprocess> cleaner;
    std::optional<jobs::HostStatus> status;
    host::ProcessId supervisor;  // of status
    UniqueFd pidfd;
    int inotify_watch = -1;
    std::string child_end;  // how `child` ended
  };

  explicit LocalHostEngine(LocalHostEngineOptions options) : options_(std::move(options)) {}
  Watch& watch(const std::string& dir);
  void read_status(const std::string& dir, Watch& watch);
  void reap(Watch& watch);
  void reap_lingering();
  bool hand_over(const std::string& kept_dir, const std::string& dir, Watch& watch);
  Status spawn(const std::string& dir, const jobs::Slice& slice, bool resumes, Watch& watch);
  void watch_process(const std::string& dir, Watch& watch);
  bool is_running(const std::string& dir, const Watch& watch) const;
  void start_cleaner(const std::string& dir, Watch& watch);
  void add_to_epoll(int fd);
  void note_inotify(std::vector<std::string>& dirs);

  LocalHostEngineOptions options_;
  const std::chrono::steady_clock::time_point opened_at_ = std::chrono::steady_clock::now();
  UniqueFd epoll_;
  UniqueFd inotify_;
  std::map<std::string, Watch> watches_;
  // Supervisors that were started for a folder that is not watched any more: they serve another.
  std::map<int, std::unique_ptr<Subprocess>> lingering_;
  std::map<int, std::string> dir_of_inotify_;
  std::map<int, std::string> dir_of_fd_;
};

}  // namespace yard::engine
