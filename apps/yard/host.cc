// yard host: the supervisor of one host of a platform job, which the engine starts.
#include <fmt/format.h>
#include <signal.h>

#include "base/log.h"
#include "commands.h"
#include "engine/local_engine.h"
#include "host/host_sandbox.h"
#include "host/host_supervisor.h"
#include "host/network_check.h"
#include "jobs/host_plan.h"
#include "remote_shell.h"

namespace yard::app {
namespace {

Status supervise(const std::string& dir, bool resumes, const Context& context) {
  host::HostSupervisorOptions options;
  options.dir = dir;
  options.resumes = resumes;
  options.env = context.env;
  options.stop = context.stop;
  options.programs_dir = context.bin_dir;
  options.on_ready = [] { engine::report_ready(); };
  auto ended = host::supervise_host(options);
  if (!ended) return std::move(ended).error();
  log_info("{}: {}", jobs::to_string(ended->outcome), ended->failure_reason);
  return Ok{};
}

// Answers "ready PID" or "failed WHY" on the standard output, in either way.
Status run_host(const std::string& dir, bool in_foreground, bool resumes, const Context& context) {
  // A store's connection or a job's pipe that ends must not end the job.
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGHUP, SIG_IGN);
  if (!in_foreground) YARD_TRY(engine::become_daemon(jobs::HostFolder{dir}.supervisor_log()));
  Status done = supervise(dir, resumes, context);
  if (!done) engine::report_failure(done.error());
  return done;
}

}  // namespace

namespace {

// In the sandbox of a host: prints its verdict, whatever that is.
void add_host_network_command(CLI::App& app, Context& context) {
  auto* sub = app.add_subcommand("host-network", "")->group("");
  auto check = std::make_shared<host::NetworkCheckOptions>();
  sub->add_option("--rank", check->rank)->required()->check(CLI::Range(0, 1023));
  sub->add_option("--port", check->port)->required();
  sub->add_option("--run-id", check->run_id)->required();
  sub->add_option("--floor", check->bytes_per_second_min);
  sub->add_option("hosts", check->hosts, "by rank")->required();
  sub->callback([check, &context] {
    context.action = [check, &context]() -> Status {
      if (static_cast<size_t>(check->rank) >= check->hosts.size())
        return Error{Code::kInvalidArgument, "--rank: there are fewer hosts"};
      fmt::print("{}\n", host::to_json(host::check_network(*check, context.stop)).dump());
      return Ok{};
    };
  });
}

}  // namespace

void add_host_command(CLI::App& app, Context& context) {
  add_host_network_command(app, context);
  add_remote_shell_command(app, context);
  auto* sub = app.add_subcommand("host", "")->group("");
  struct Arguments {
    std::string dir;
    bool in_foreground = false;
    bool clean = false;
    bool resumes = false;
  };
  auto arguments = std::make_shared<Arguments>();
  sub->add_option("dir", arguments->dir, "JOB_DIR/hosts/NAME, with plan.json")->required();
  sub->add_flag("--foreground", arguments->in_foreground);
  sub->add_flag("--clean", arguments->clean, "remove what a killed supervisor left");
  sub->add_flag("--resume", arguments->resumes, "only what follows the program's end");
  sub->callback([arguments, &context] {
    context.action = [arguments, &context] {
      std::string dir = arguments->dir;
      while (dir.size() > 1 && dir.ends_with('/')) dir.pop_back();
      if (!dir.starts_with('/'))
        return Status(Error{Code::kInvalidArgument, dir + ": give the whole path"});
      if (arguments->clean) return host::clean_host({dir});
      return run_host(dir, arguments->in_foreground, arguments->resumes, context);
    };
  });
}

}  // namespace yard::app
