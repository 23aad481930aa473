// What of a host's sandbox stays for the next job on it.
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "host/host_sandbox.h"
#include "host/job_layout.h"

namespace yard::host {
namespace {

namespace fs = std::filesystem;

constexpr const char* kScratch = "/scratch";

Status remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return errno_error(path, error.value());
  return Ok{};
}

// `from` takes the place of `to`.
Status put_in_place(const std::string& from, const std::string& to) {
  YARD_TRY(remove_tree(to));
  if (::rename(from.c_str(), to.c_str()) != 0) return errno_error(to, errno);
  return Ok{};
}

bool is_same_runtime(const jobs::PlanRuntime& a, const jobs::PlanRuntime& b) {
  return a.python == b.python && a.root == b.root;
}

}  // namespace

Status HostSandbox::make_ready(bool with_interpreter) {
  reserve_.reset();
  binds_.clear();
  runtime_.overlays.clear();
  YARD_TRY(remove_tree(scratch_dir_));
  const std::string next = options_.folder.next();
  YARD_TRY(remove_tree(next));
  const std::string ml = next + "/ml";
  YARD_TRY(make_layout_folders(plan_.kind, ml));
  // What a job put there is for the next one.
  if (plan_.kind == jobs::HostJobKind::kTraining)
    if (const Status kept =
            put_in_place(options_.folder.ml() + kWarmPoolCache, ml + kWarmPoolCache);
        !kept)
      log_warning("{}", kept.error().message);
  scratch_dir_ = next + kScratch;
  YARD_TRY(sandbox::write_scratch(scratch_dir_, plan_.host, addresses_));
  YARD_TRY(set_up_runtime());
  return with_interpreter ? reserve(ml) : Status(Ok{});
}

Status HostSandbox::reserve(const std::string& ml_dir) {
  sandbox::SandboxOptions options = sandbox_options(ml_dir);
  options.cwd = "/opt/ml";
  SubprocessOptions child = process_options(
      sandbox::sandbox_command(options, runtime_, fork_server_command(runtime_.python)));
  child.env = runtime_.env;
  for (const auto& [name, value] : sandbox_environment()) child.env[name] = value;
  YARD_ASSIGN(reserve_, ReservedPython::start(std::move(child)));
  return Ok{};
}

Status HostSandbox::move_to(const HostSandboxOptions& options) {
  const jobs::HostFolder from = options_.folder;
  const jobs::HostFolder to = options.folder;
  const jobs::HostPlan old = std::exchange(plan_, *options.plan);
  const bool has_same_ports = options_.endpoints == options.endpoints;
  options_ = options;
  if (old.cores != plan_.cores || old.gpus != plan_.gpus || old.host != plan_.host ||
      old.memory_limit_bytes != plan_.memory_limit_bytes ||
      plan_.kind != jobs::HostJobKind::kTraining) {
    reserve_.reset();
    limit_memory();
  }
  YARD_TRY(remove_tree(to.dir + kScratch));
  YARD_TRY(put_in_place(from.next() + "/ml", to.ml()));
  YARD_TRY(put_in_place(from.next() + kScratch, to.dir + kScratch));
  runtime_.rebase(from.next() + kScratch, to.dir + kScratch);
  scratch_dir_ = to.dir + kScratch;
  YARD_TRY(remove_tree(from.next()));
  if (!is_same_runtime(old.runtime, plan_.runtime)) {
    reserve_.reset();
    runtime_.overlays.clear();
    YARD_TRY(remove_tree(scratch_dir_ + "/runtime"));
    YARD_TRY(set_up_runtime());
  }
  if (network_ && !has_same_ports) {
    forwarders_.clear();
    YARD_TRY(forward_endpoints());
  }
  return Ok{};
}

// nullopt: none waits, or not for this program.
std::optional<Result<Subprocess>> HostSandbox::start_in_reserve(const Launch& launch) {
  const std::unique_ptr<ReservedPython> reserve = std::move(reserve_);
  started_warm_ = false;
  if (!reserve || !binds_.empty() || !reserve->is_ready()) return std::nullopt;
  auto started = std::move(*reserve).run({.command = launch.command,
                                          .env = launch.env,
                                          .cwd = launch.cwd,
                                          .output_fd = launch.output_fd,
                                          .is_plain = launch.needs_fresh_python});
  if (!started) {
    log_warning("{}", started.error().message);
    return std::nullopt;
  }
  started_warm_ = true;
  return started;
}

}  // namespace yard::host
