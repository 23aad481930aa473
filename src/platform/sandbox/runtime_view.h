// RuntimeView: "the image" of a job as folders of this machine that its sandbox shows.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "jobs/host_plan.h"

namespace yard::sandbox {

struct Bind {
  std::string source;
  std::string target;
  bool is_writable = false;
  bool is_optional = false;  // left out where there is no source
};
struct Link {
  std::string target;  // what it says
  std::string path;    // where it lies
};

// An overlay mount of this process: writes go to a folder of the job, `lower` stays as it is.
// Taken off by the destructor; gone with the mount namespace of a process that was killed.
class Overlay {
 public:
  // `folder` gets upper, work and merged. kUnavailable: not allowed here, or `lower` has a name
  // that cannot be given.
  static Result<Overlay> mount(const std::string& lower, const std::string& folder);
  Overlay(Overlay&& other) noexcept : merged_(std::exchange(other.merged_, {})) {}
  Overlay& operator=(Overlay&&) = delete;
  ~Overlay();
  const std::string& merged() const { return merged_; }
  // A folder above it was renamed.
  void rebase(const std::string& from, const std::string& to);

 private:
  explicit Overlay(std::string merged) : merged_(std::move(merged)) {}
  std::string merged_;
};

struct RuntimeView {
  std::vector<Bind> binds;  // in this order
  std::vector<Link> links;
  std::string python;                      // the interpreter, as the sandbox sees it
  std::map<std::string, std::string> env;  // PATH, VIRTUAL_ENV and what else makes it work
  std::vector<Overlay> overlays;
  bool is_writable = false;  // packages can be installed over it

  // The folder `from`, below which its overlay lies, was renamed to `to`.
  void rebase(const std::string& from, const std::string& to);
};

// kNotFound, kInvalidArgument: the runtime is not there, or no Python environment. With
// `may_mount` (see enter_private_mounts()) the job may write over it; else packages that it
// installs go below /opt/ml/packages.
Result<RuntimeView> open_runtime(const jobs::PlanRuntime& runtime, const std::string& scratch_dir,
                                 bool may_mount);

// The absolute folders that the lines of a .pth file name. Pure.
std::vector<std::string> folders_of_pth(std::string_view text);

}  // namespace yard::sandbox
