// yard ssh: a shell, or a command, inside the sandbox of a host of a job of 'yard serve'.
#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>

#include "base/file.h"
#include "commands.h"
#include "jobs/host_plan.h"
#include "observe/host_processes.h"
#include "platform_home.h"

namespace yard::app {
namespace {

constexpr int kCannotStart = 127;
constexpr uint64_t kEnvironmentBytesMax = uint64_t{4} << 20;

// What a job's own processes may do: the set that its sandbox was made with.
constexpr std::array kKeptCapabilities = {
    CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FOWNER,           CAP_FSETID,    CAP_KILL,
    CAP_SETGID, CAP_SETUID,       CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT};

struct SshArguments {
  std::string target;  // JOB or JOB/algo-1
  std::vector<std::string> command;
  bool is_processing = false;
};

// Everything that the child needs, made before the fork: behind it, in a process that had threads,
// nothing may allocate.
struct Entry {
  int pidfd = -1;
  int namespaces = 0;
  bool is_root = false;
  cpu_set_t cores;
  bool has_cores = false;
  std::vector<char*> argv;
  std::vector<char*> envp;
};

Result<std::string> host_dir_of(const SshArguments& arguments, const Context& context) {
  const size_t slash = arguments.target.find('/');
  const std::string job = arguments.target.substr(0, slash);
  const std::string host =
      slash == std::string::npos ? "algo-1" : arguments.target.substr(slash + 1);
  if (job.empty() || host.empty() || host.find('/') != std::string::npos)
    return Error{Code::kInvalidArgument, arguments.target + ": not JOB/algo-1"};
  const std::string dir = fmt::format("{}/jobs/{}{}/hosts/{}", platform_home(context.yard_home).dir,
                                      job, arguments.is_processing ? ".processing" : "", host);
  std::error_code error;
  if (std::filesystem::is_directory(dir, error)) return dir;
  return Error{Code::kNotFound, fmt::format("no host '{}' of a job '{}' here", host, job)};
}

// The program's variables, so that what is tried sees what it sees.
std::vector<std::string> environment_of(pid_t pid, const Context& context) {
  std::vector<std::string> variables;
  const auto text = read_file(fmt::format("/proc/{}/environ", pid), kEnvironmentBytesMax);
  std::string_view rest = text ? *text : std::string_view();
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const bool is_ours =
        item.starts_with("TERM=") || item.starts_with("RANK=") || item.starts_with("LOCAL_RANK=");
    if (!item.empty() && !is_ours) variables.emplace_back(item);
  }
  if (const auto term = context.env.find("TERM"); term != context.env.end())
    variables.push_back("TERM=" + term->second);
  return variables;
}

// Those that differ from ours. A user namespace has to be entered before the others, which setns(2)
// does.
int namespaces_of(pid_t pid) {
  constexpr std::pair<const char*, int> kKinds[] = {{"user", CLONE_NEWUSER}, {"mnt", CLONE_NEWNS},
                                                    {"uts", CLONE_NEWUTS},   {"ipc", CLONE_NEWIPC},
                                                    {"net", CLONE_NEWNET},   {"pid", CLONE_NEWPID}};
  int flags = 0;
  for (const auto& [name, flag] : kKinds) {
    std::error_code error;
    const auto theirs =
        std::filesystem::read_symlink(fmt::format("/proc/{}/ns/{}", pid, name), error);
    const auto ours = std::filesystem::read_symlink(fmt::format("/proc/self/ns/{}", name), error);
    if (theirs != ours) flags |= flag;
  }
  return flags;
}

void set_cores(const std::string& host_dir, Entry& entry) {
  const std::string path = jobs::HostFolder{host_dir}.plan();
  const auto text = read_file(path);
  if (!text) return;
  const auto plan = parse_json(*text, path);
  if (!plan) return;
  const auto cores = json_field_or(*plan, "cores", std::vector<int>(), path);
  CPU_ZERO(&entry.cores);
  for (const int core : cores ? *cores : std::vector<int>())
    if (core >= 0 && core < CPU_SETSIZE) {
      CPU_SET(static_cast<size_t>(core), &entry.cores);
      entry.has_cores = true;
    }
}

void drop_capabilities() {
  for (int capability = 0; capability <= CAP_LAST_CAP; ++capability)
    if (std::find(kKeptCapabilities.begin(), kKeptCapabilities.end(), capability) ==
        kKeptCapabilities.end())
      ::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
}

// In the sandbox, as its foreground where there is a terminal.
[[noreturn]] void run_inside(const Entry& entry, bool has_terminal) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setpgid(0, 0);
  if (has_terminal) ::tcsetpgrp(STDIN_FILENO, ::getpgrp());
  for (const int signal : {SIGINT, SIGTERM, SIGQUIT, SIGTTOU, SIGTTIN, SIGTSTP, SIGPIPE})
    ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (entry.is_root) drop_capabilities();
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (::chdir("/opt/ml") != 0 && ::chdir("/") != 0) ::_exit(kCannotStart);
  ::execvpe(entry.argv[0], entry.argv.data(), entry.envp.data());
  ::_exit(kCannotStart);
}

int exit_code_of_wait(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return kCannotStart;
  return exit_code_of_wait(status);
}

// A process between ours and the sandbox: what it joins, it joins for itself alone, and only its
// children are in the sandbox's pid namespace. 126: it may not join.
[[noreturn]] void enter(const Entry& entry, bool has_terminal) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int signal : {SIGTTOU, SIGTTIN, SIGINT, SIGQUIT, SIGTSTP}) ::signal(signal, SIG_IGN);
  if (entry.has_cores) ::sched_setaffinity(0, sizeof entry.cores, &entry.cores);
  if (::setns(entry.pidfd, entry.namespaces) != 0) ::_exit(126);
  const pid_t inside = ::fork();
  if (inside < 0) ::_exit(kCannotStart);
  if (inside == 0) run_inside(entry, has_terminal);
  ::_exit(wait_for(inside));
}

std::vector<char*> pointers_of(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

Result<int> run_in_sandbox(const Entry& entry) {
  const bool has_terminal = ::isatty(STDIN_FILENO) == 1;
  const pid_t between = ::fork();
  if (between < 0) return errno_error("fork", errno);
  if (between == 0) enter(entry, has_terminal);
  const int code = wait_for(between);
  if (!has_terminal) return code;
  ::signal(SIGTTOU, SIG_IGN);
  ::tcsetpgrp(STDIN_FILENO, ::getpgrp());
  return code;
}

Result<int> open_shell(const SshArguments& arguments, const Context& context) {
  YARD_ASSIGN(const std::string dir, host_dir_of(arguments, context));
  YARD_ASSIGN(const auto processes, observe::host_processes(dir));
  if (processes.inside.empty())
    return Error{Code::kNotFound, arguments.target + ": nothing runs in its sandbox now"};
  const pid_t target = processes.inside.front().pid;
  const auto program = observe::program_of(processes);
  std::vector<std::string> command = arguments.command;
  if (command.empty()) command = {"bash", "-i"};
  std::vector<std::string> variables = environment_of(program ? program->pid : target, context);
  Entry entry;
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, target, 0)));
  if (!pidfd.valid()) return errno_error(fmt::format("process {}", target), errno);
  entry.pidfd = pidfd.get();
  entry.namespaces = namespaces_of(target);
  if ((entry.namespaces & CLONE_NEWNS) == 0)
    return Error{Code::kUnavailable,
                 arguments.target + ": its sandbox is not to be seen from here"};
  entry.is_root = ::geteuid() == 0;
  set_cores(dir, entry);
  entry.argv = pointers_of(command);
  entry.envp = pointers_of(variables);
  return run_in_sandbox(entry);
}

Status ssh(const SshArguments& arguments, Context& context) {
  YARD_ASSIGN(context.exit_code, open_shell(arguments, context));
  return Ok{};
}

}  // namespace

void add_ssh_command(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<SshArguments>();
  CLI::App* command =
      app.add_subcommand("ssh", "a shell inside the sandbox of a host of a job, on this machine");
  command->add_option("target", arguments->target, "JOB/algo-1; of JOB alone the first host")
      ->required();
  command->add_option("command", arguments->command, "behind --; its exit code becomes ours");
  command->add_flag("--processing", arguments->is_processing, "a processing job");
  command->footer(
      "Examples:\n  yard ssh my-job/algo-2\n  yard ssh my-job -- ls /opt/ml/checkpoints");
  command->callback([arguments, &context] {
    context.action = [arguments, &context] { return ssh(*arguments, context); };
  });
}

}  // namespace yard::app
