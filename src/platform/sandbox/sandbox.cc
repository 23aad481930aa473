#include "sandbox/sandbox.h"

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <sstream>

#include "base/file.h"

namespace yard::sandbox {
namespace {

namespace fs = std::filesystem;

// What a container has by default, less the making of devices: enough for package managers and
// servers, too little to leave the sandbox.
constexpr std::array kCapabilities = {
    "CAP_CHOWN",  "CAP_DAC_OVERRIDE", "CAP_FOWNER",           "CAP_FSETID",    "CAP_KILL",
    "CAP_SETGID", "CAP_SETUID",       "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT"};

void add(std::vector<std::string>& argv, std::initializer_list<std::string> items) {
  argv.insert(argv.end(), items);
}

void add_bind(std::vector<std::string>& argv, const Bind& bind) {
  std::error_code error;
  if (bind.is_optional && !fs::exists(bind.source, error)) return;
  add(argv, {bind.is_writable ? "--bind" : "--ro-bind", bind.source, bind.target});
}

void add_devices(std::vector<std::string>& argv, const std::vector<int>& gpus) {
  add(argv, {"--dev", "/dev", "--tmpfs", "/dev/shm"});
  if (gpus.empty()) return;
  for (const char* name :
       {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "infiniband"})
    add(argv, {"--dev-bind-try", fmt::format("/dev/{}", name), fmt::format("/dev/{}", name)});
  for (const int gpu : gpus)
    add(argv,
        {"--dev-bind-try", fmt::format("/dev/nvidia{}", gpu), fmt::format("/dev/nvidia{}", gpu)});
}

void add_isolation(std::vector<std::string>& argv, const SandboxOptions& options) {
  add(argv, {"--unshare-pid", "--unshare-ipc", "--unshare-uts", "--hostname", options.hostname,
             "--die-with-parent", "--new-session"});
  if (!options.as_root) {
    add(argv, {"--unshare-user", "--uid", "0", "--gid", "0"});
    return;
  }
  add(argv, {"--cap-drop", "ALL"});
  for (const char* capability : kCapabilities) add(argv, {"--cap-add", capability});
}

// Of a process of this machine; 0 when it is gone.
int parent_of(int pid) {
  const auto text = read_file(fmt::format("/proc/{}/stat", pid), 64 << 10);
  if (!text) return 0;
  // The name in brackets may hold anything: fields are counted behind the last one.
  const auto bracket = text->rfind(')');
  if (bracket == std::string::npos) return 0;
  std::istringstream fields(text->substr(bracket + 1));
  char state = 0;
  int parent = 0;
  fields >> state >> parent;
  return parent;
}

std::map<int, int> parents_of_all() {
  std::map<int, int> parents;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    int pid = 0;
    const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (failed == std::errc() && end == name.data() + name.size()) parents[pid] = parent_of(pid);
  }
  return parents;
}

}  // namespace

std::vector<std::string> sandbox_command(const SandboxOptions& options, const RuntimeView& runtime,
                                         const std::vector<std::string>& program) {
  std::vector<std::string> argv;
  if (!options.network_namespace.empty())
    add(argv, {"nsenter", "--net=" + options.network_namespace, "--"});
  argv.push_back("bwrap");
  add_isolation(argv, options);
  const auto is_root = [](const Bind& bind) { return bind.target == "/"; };
  for (const Bind& bind : runtime.binds)
    if (is_root(bind)) add_bind(argv, bind);
  add(argv, {"--proc", "/proc", "--ro-bind-try", "/sys", "/sys"});
  add_devices(argv, options.gpus);
  // Before the runtime, which may lie below one of them.
  const std::string& scratch = options.scratch_dir;
  add(argv, {"--bind", scratch + "/tmp", "/tmp", "--bind", scratch + "/home", "/root"});
  add(argv, {"--dir", "/run", "--dir", "/var/tmp"});
  for (const Bind& bind : runtime.binds)
    if (!is_root(bind)) add_bind(argv, bind);
  for (const Link& link : runtime.links) add(argv, {"--symlink", link.target, link.path});
  const char* const resolver = options.asks_for_names ? "resolv.conf" : "resolv.conf.none";
  add(argv, {"--ro-bind", scratch + "/etc/hosts", "/etc/hosts"});
  add(argv, {"--ro-bind", scratch + "/etc/hostname", "/etc/hostname"});
  add(argv, {"--ro-bind", scratch + "/etc/" + resolver, "/etc/resolv.conf"});
  add(argv, {"--bind", options.ml_dir, "/opt/ml"});
  for (const Bind& bind : options.binds) add_bind(argv, bind);
  add(argv, {"--chdir", options.cwd, "--"});
  argv.insert(argv.end(), program.begin(), program.end());
  return argv;
}

Status write_scratch(const std::string& scratch_dir, const std::string& hostname,
                     const std::map<std::string, std::string>& addresses) {
  for (const char* name : {"/tmp", "/home", "/etc"}) YARD_TRY(make_directories(scratch_dir + name));
  if (::chmod((scratch_dir + "/tmp").c_str(), 01777) != 0)
    return errno_error(scratch_dir + "/tmp", errno);
  std::string hosts = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n";
  for (const auto& [name, address] : addresses) hosts += fmt::format("{}\t{}\n", address, name);
  YARD_TRY(write_file_atomic(scratch_dir + "/etc/hosts", hosts));
  YARD_TRY(write_file_atomic(scratch_dir + "/etc/hostname", hostname + "\n"));
  // Without a server the library asks this host itself, which refuses at once.
  YARD_TRY(write_file_atomic(scratch_dir + "/etc/resolv.conf.none", "options attempts:1\n"));
  // The machine's stub on 127.0.0.53 is not there in another network namespace; what stands behind
  // it is.
  auto resolver = read_file("/run/systemd/resolve/resolv.conf", 1 << 20);
  if (!resolver) resolver = read_file("/etc/resolv.conf", 1 << 20);
  return write_file_atomic(scratch_dir + "/etc/resolv.conf", resolver ? *resolver : "");
}

Status enter_private_mounts() {
  if (::unshare(CLONE_NEWNS) != 0)
    return Error{Code::kUnavailable, errno_error("a mount namespace", errno).message};
  // What the machine mounts later still arrives; what we mount does not leave.
  if (::mount("none", "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0)
    return errno_error("a private mount namespace", errno);
  return Ok{};
}

std::vector<int> processes_below(int pid) {
  const std::map<int, int> parents = parents_of_all();
  std::vector<int> found;
  for (const auto& [candidate, parent] : parents) {
    constexpr int kDepthMax = 4096;
    int ancestor = parent;
    for (int depth = 0; ancestor > 1 && ancestor != pid && depth < kDepthMax; ++depth) {
      const auto next = parents.find(ancestor);
      ancestor = next == parents.end() ? 0 : next->second;
    }
    if (ancestor == pid) found.push_back(candidate);
  }
  return found;
}

std::vector<int> children_of(int pid) {
  std::vector<int> children;
  for (const auto& [candidate, parent] : parents_of_all())
    if (parent == pid) children.push_back(candidate);
  return children;
}

std::vector<int> sandbox_programs(int bwrap_pid) {
  std::vector<int> programs = processes_below(bwrap_pid);
  std::erase_if(programs, [&](int pid) { return parent_of(pid) == bwrap_pid; });
  return programs;
}

int signal_sandbox(int bwrap_pid, int signal) {
  int count = 0;
  for (const int pid : sandbox_programs(bwrap_pid))
    if (::kill(pid, signal) == 0) ++count;
  return count;
}

}  // namespace yard::sandbox
