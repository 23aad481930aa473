#include "host/host_sandbox.h"

#include <fmt/format.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "host/process.h"

namespace yard::host {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPlanBytesMax = uint64_t{64} << 20;

std::string scratch_dir_of(const jobs::HostFolder& folder) {
  return folder.dir + "/scratch";
}

// JOB_DIR of JOB_DIR/hosts/algo-1: what the hosts of the job have in common.
std::string job_dir_of(const jobs::HostFolder& folder) {
  return fs::path(folder.dir).parent_path().parent_path();
}

// As far as the plan can be read: of the pool whose host this was.
std::string network_dir_of(const jobs::HostFolder& folder) {
  const auto text = read_file(folder.plan(), kPlanBytesMax);
  const auto json = text ? parse_json(*text, folder.plan()) : Result<Json>(text.error());
  const auto named =
      json ? json_field_or<std::string>(*json, "network_dir", {}, "plan") : Result<std::string>("");
  return named && !named->empty() ? *named : job_dir_of(folder);
}

// The same for all jobs on a warm pool: what waits for the next one is in the group already.
std::string memory_id(const std::string& network_dir, const std::string& host) {
  return network_dir + "/" + host;
}

sandbox::NetworkOptions network_options(const jobs::HostPlan& plan, const std::string& job_dir) {
  sandbox::NetworkOptions options;
  options.job_dir = job_dir;
  options.host = plan.host;
  options.hosts = jobs::sorted_host_names(plan);
  return options;
}

// Mount points below `folder` that are seen from here: of a supervisor without mounts of its own.
void detach_mounts_below(const std::string& folder) {
  const auto text = read_file("/proc/self/mountinfo");
  if (!text) return;
  std::vector<std::string> points;
  std::string_view rest = *text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const size_t at = line.find(" " + folder + "/");
    if (at == std::string_view::npos) continue;
    const std::string_view point = line.substr(at + 1);
    points.emplace_back(point.substr(0, point.find(' ')));
  }
  for (auto point = points.rbegin(); point != points.rend(); ++point)
    if (::umount2(point->c_str(), MNT_DETACH) != 0)
      log_warning("{}", errno_error(*point, errno).message);
}

Status remove_folder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return errno_error(path, error.value());
  return Ok{};
}

}  // namespace

std::optional<LocalPort> local_port_of(const std::string& url) {
  const auto scheme = url.find("://");
  if (scheme == std::string::npos) return std::nullopt;
  std::string_view authority = std::string_view(url).substr(scheme + 3);
  authority = authority.substr(0, authority.find('/'));
  const auto colon = authority.rfind(':');
  const std::string_view host = authority.substr(0, colon);
  uint16_t port = url.starts_with("https") ? 443 : 80;
  if (colon != std::string_view::npos) {
    const std::string_view digits = authority.substr(colon + 1);
    const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (failed != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  }
  if (host == "localhost") return LocalPort{"127.0.0.1", port};
  if (host.starts_with("127.")) return LocalPort{std::string(host), port};
  return std::nullopt;
}

Result<std::unique_ptr<HostSandbox>> HostSandbox::open(const HostSandboxOptions& options) {
  std::unique_ptr<HostSandbox> sandbox(new HostSandbox(options));
  sandbox->plan_ = *options.plan;
  sandbox->limit_memory();
  sandbox->scratch_dir_ = scratch_dir_of(options.folder);
  YARD_TRY(remove_folder(sandbox->scratch_dir_));
  YARD_TRY(sandbox->set_up_network());
  YARD_TRY(sandbox::write_scratch(sandbox->scratch_dir_, options.plan->host, sandbox->addresses_));
  YARD_TRY(sandbox->set_up_runtime());
  return sandbox;
}

HostSandbox::~HostSandbox() {
  reserve_.reset();
  runtime_.overlays.clear();
  for (const std::string& folder : {scratch_dir_, options_.folder.next(), options_.folder.cache()})
    if (const Status removed = remove_folder(folder); !removed)
      log_warning("{}", removed.error().message);
}

Status HostSandbox::set_up_network() {
  const jobs::HostPlan& plan = plan_;
  for (const jobs::PlanHost& host : plan.hosts)
    addresses_[host.name] = host.address.empty() ? "127.0.0.1" : host.address;
  const bool has_addresses = !plan.hosts[0].address.empty();
  if (plan.network == jobs::PlanNetwork::kShared || has_addresses) return Ok{};
  if (options_.is_root) {
    auto network = sandbox::HostNetwork::open(network_options(plan, options_.network_dir));
    if (network) {
      network_ = *std::move(network);
      addresses_ = network_->addresses();
      if (!network_->reaches_outward())
        note_ =
            "network: the hosts of this job and the store are reached, nothing else (neither "
            "nft nor iptables works here)";
      return forward_endpoints();
    }
    note_ = network.error().message;
  } else {
    note_ = "this is not run by root";
  }
  if (plan.network == jobs::PlanNetwork::kOwn)
    return Error{Code::kUnavailable, "no network of its own for this host: " + note_};
  note_ =
      "network: that of the machine, so that no two jobs can use one port, as 7777 of torchrun, "
      "at once (" +
      note_ + ")";
  return Ok{};
}

Status HostSandbox::forward_endpoints() {
  std::vector<std::pair<std::string, uint16_t>> done;
  for (const std::string& url : options_.endpoints) {
    const auto local = local_port_of(url);
    if (!local) continue;
    const std::pair<std::string, uint16_t> key{local->address, local->port};
    if (std::ranges::find(done, key) != done.end()) continue;
    YARD_ASSIGN(auto forwarder,
                sandbox::PortForwarder::start({.network_namespace_fd = network_->fd(),
                                               .address = local->address,
                                               .port = local->port}));
    forwarders_.push_back(std::move(forwarder));
    done.push_back(key);
  }
  return Ok{};
}

Status HostSandbox::set_up_runtime() {
  runtime_.overlays.clear();
  YARD_ASSIGN(runtime_, sandbox::open_runtime(plan_.runtime, scratch_dir_, options_.may_mount));
  const std::string& programs = options_.programs_dir;
  if (programs.empty()) return Ok{};
  runtime_.binds.push_back({programs, programs, false, true});
  runtime_.env["PATH"] += ":" + programs;
  return Ok{};
}

ScriptMachine HostSandbox::machine() const {
  const jobs::HostPlan& plan = plan_;
  ScriptMachine machine;
  machine.cpu_count =
      plan.cores.empty() ? int(::sysconf(_SC_NPROCESSORS_ONLN)) : int(plan.cores.size());
  machine.gpu_count = int(plan.gpus.size());
  const bool is_alone_here = !network_ && plan.hosts[0].address.empty();
  machine.network_interface = is_alone_here ? "lo" : "eth0";
  machine.python = runtime_.python;
  return machine;
}

sandbox::SandboxOptions HostSandbox::sandbox_options(const std::string& ml_dir) const {
  sandbox::SandboxOptions options;
  options.hostname = plan_.host;
  options.ml_dir = ml_dir;
  options.scratch_dir = scratch_dir_;
  options.gpus = plan_.gpus;
  options.as_root = options_.is_root;
  if (network_) {
    options.network_namespace = network_->path();
    options.asks_for_names = network_->reaches_outward();
  }
  return options;
}

void HostSandbox::limit_memory() {
  memory_.reset();
  if (plan_.memory_limit_bytes == 0) return;
  auto group = sandbox::MemoryGroup::make(memory_id(options_.network_dir, plan_.host),
                                          plan_.memory_limit_bytes);
  if (group)
    memory_ = *std::move(group);
  else
    log_info("memory is watched, the kernel does not limit it: {}", group.error().message);
}

SubprocessOptions HostSandbox::process_options(const std::vector<std::string>& command) const {
  SubprocessOptions child;
  // A process that enters the group by itself takes all with it that it starts.
  if (memory_)
    child.argv = {"/bin/sh", "-c", "echo $$ > \"$0\" && exec \"$@\"", memory_->procs_path()};
  child.argv.insert(child.argv.end(), command.begin(), command.end());
  child.kill_with_parent = true;
  child.cpus = plan_.cores;
  return child;
}

Result<Subprocess> HostSandbox::start(const Launch& launch) {
  const bool goes_outside = launch.needs_outward && network_ && !network_->reaches_outward();
  if (!launch.needs_outward && !launch.keeps_reserve)
    if (auto started = start_in_reserve(launch)) return *std::move(started);
  sandbox::SandboxOptions options = sandbox_options(options_.folder.ml());
  options.binds = binds_;
  options.cwd = launch.cwd;
  if (goes_outside) {
    options.network_namespace.clear();
    options.asks_for_names = true;
  }
  SubprocessOptions child =
      process_options(sandbox::sandbox_command(options, runtime_, launch.command));
  child.env = launch.env;
  child.stdout_fd = launch.output_fd;
  child.stderr_fd = launch.output_fd;
  auto started = Subprocess::spawn(child);
  if (!started && started.error().code == Code::kNotFound)
    return Error{Code::kUnavailable,
                 started.error().message + ": needs bubblewrap (bwrap) and util-linux (nsenter)"};
  return started;
}

Status clean_host(const jobs::HostFolder& folder) {
  if (::geteuid() == 0) {
    sandbox::NetworkOptions options;
    options.job_dir = network_dir_of(folder);
    options.host = fs::path(folder.dir).filename();
    YARD_TRY(sandbox::HostNetwork::clean(options));
  }
  sandbox::MemoryGroup::clean(memory_id(network_dir_of(folder), fs::path(folder.dir).filename()));
  detach_mounts_below(folder.dir);
  for (const std::string& path : {scratch_dir_of(folder), folder.next(), folder.cache()})
    YARD_TRY(remove_folder(path));
  return Ok{};
}

}  // namespace yard::host
