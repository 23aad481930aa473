// yard serve: the platform on this machine, one process and one port.
#include <fmt/format.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "api/api_front.h"
#include "api/control_desk.h"
#include "api/fault_injection.h"
#include "api/identity_services.h"
#include "api/logs_service.h"
#include "api/monitoring_service.h"
#include "api/sagemaker_service.h"
#include "api/sqs_service.h"
#include "api/yard_service.h"
#include "base/file.h"
#include "base/log.h"
#include "base/open_files.h"
#include "commands.h"
#include "endpoint.h"
#include "engine/platform_control.h"
#include "events_to_queues.h"
#include "gateway/gateway.h"
#include "job_watch.h"
#include "metrics/metric_store.h"
#include "net/http_server.h"
#include "platform_home.h"
#include "queue/message_queues.h"

namespace yard::app {
namespace {

constexpr std::chrono::seconds kStopGrace{10};

struct PlatformServeOptions {
  std::string listen = "127.0.0.1:8080";
  std::string region = "us-east-1";
  std::string account_id = "123456789012";
  std::string bucket;     // default: as the SageMaker SDK would name it
  std::string store_url;  // empty: objects are served here
  std::string python;     // the virtual environment of jobs
  std::string tls_certificate;
  std::string tls_key;
  double requests_per_second = 20'000;
};

// "http://0.0.0.0:8080" is where we listen, not where anybody gets to us.
std::string reachable(std::string url) {
  for (const std::string_view any : {"//0.0.0.0:", "//[::]:", "//:"})
    if (const size_t at = url.find(any); at != url.npos)
      return url.replace(at, any.size(), "//127.0.0.1:");
  return url;
}

Status make_private_folder(const std::string& path) {
  YARD_TRY(make_directories(path));
  if (::chmod(path.c_str(), 0700) != 0) return errno_error(path, errno);
  return Ok{};
}

std::string env_value(const Context& context, const char* name) {
  const auto found = context.env.find(name);
  return found == context.env.end() ? "" : found->second;
}

// The virtual environment that was given, is active, or lies beside the build.
std::string python_of_jobs(const PlatformServeOptions& options, const Context& context) {
  if (!options.python.empty())
    return std::filesystem::absolute(options.python).lexically_normal().string();
  if (const std::string active = env_value(context, "VIRTUAL_ENV"); !active.empty()) return active;
  std::error_code unreadable;  // as good as none
  for (std::filesystem::path dir = context.bin_dir; dir.has_relative_path();
       dir = dir.parent_path())
    if (std::filesystem::exists(dir / ".venv/bin/python", unreadable))
      return (dir / ".venv").string();
  return "";
}

// What supervisors of jobs inherit: nothing of AWS, whose variables they get for their own key.
std::map<std::string, std::string> supervisor_env(const Context& context) {
  std::map<std::string, std::string> env = context.env;
  std::erase_if(env, [](const auto& variable) { return variable.first.starts_with("AWS_"); });
  return env;
}

std::string sdk_config_text(const std::string& bucket) {
  return fmt::format(
      "# For SAGEMAKER_USER_CONFIG_OVERRIDE, see docs/sagemaker.md; written by yard serve.\n"
      "SchemaVersion: '1.0'\n"
      "SageMaker:\n"
      "  PythonSDK:\n"
      "    Modules:\n"
      "      TelemetryOptOut: true\n"
      "      Session:\n"
      "        DefaultS3Bucket: {}\n",
      bucket);
}

// Everything that runs; members end in the reverse order of their making.
class Platform {
 public:
  static Result<std::unique_ptr<Platform>> start(const PlatformServeOptions& options,
                                                 const Context& context) {
    std::unique_ptr<Platform> platform(new Platform(options, context));
    YARD_TRY(platform->open_home());
    YARD_TRY(platform->open_store());
    YARD_TRY(platform->listen());
    YARD_TRY(platform->open_control());
    YARD_TRY(platform->answer_requests());
    return platform;
  }
  ~Platform() {
    if (server_) server_->stop(kStopGrace);
  }

  const std::string& url() const { return url_; }
  const PlatformHome& home() const { return home_; }

 private:
  Platform(const PlatformServeOptions& options, const Context& context)
      : options_(options), context_(context), home_(platform_home(context.yard_home)) {
    if (options_.bucket.empty())
      options_.bucket = fmt::format("sagemaker-{}-{}", options_.region, options_.account_id);
  }

  Status open_home() {
    YARD_TRY(make_private_folder(home_.dir));
    YARD_ASSIGN(users_, api::Users::open(home_.users()));
    YARD_ASSIGN(audit_, api::AuditLog::open({.path = home_.audit_log()}, Clock::real()));
    return write_file_atomic(home_.sdk_config(), sdk_config_text(options_.bucket));
  }

  // Ours, or that of somebody else, to whom we are known by the key of our environment.
  Status open_store() {
    if (!options_.store_url.empty()) return adopt_store_key();
    YARD_TRY(make_private_folder(home_.store()));
    YARD_TRY(make_directories(home_.store() + "/" + options_.bucket));
    gateway::GatewayOptions gateway;
    gateway.root = home_.store();
    gateway.credentials = users_->by_name(api::kJobsUser)->credentials;
    gateway.lookup = [users = users_.get()](std::string_view key) -> std::optional<Credentials> {
      const auto user = users->by_key(key);
      if (!user) return std::nullopt;
      return user->credentials;
    };
    gateway.authorize = [users = users_.get(),
                         audit = audit_.get()](const gateway::StoreAccess& access) {
      return api::authorize_store(*users, audit, access);
    };
    gateway.region = options_.region;
    gateway.account_id = options_.account_id;
    YARD_ASSIGN(gateway.event_sink, events_into_queues(home_.queues()));
    YARD_ASSIGN(store_, gateway::Gateway::open(std::move(gateway)));
    return Ok{};
  }

  Status adopt_store_key() {
    const std::string key = env_value(context_, "AWS_ACCESS_KEY_ID");
    const std::string secret = env_value(context_, "AWS_SECRET_ACCESS_KEY");
    if (key.empty() || secret.empty())
      return Error{Code::kInvalidArgument,
                   "--s3-endpoint: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of that store are "
                   "needed in the environment"};
    return users_->put({std::string(api::kStoreUser), api::Role::kAdmin, {key, secret, ""}});
  }

  Status listen() {
    YARD_ASSIGN(const HostPort at, parse_listen(options_.listen));
    YARD_ASSIGN(server_, HttpServer::start({.host = at.host,
                                            .port = at.port,
                                            .tls_certificate_path = options_.tls_certificate,
                                            .tls_key_path = options_.tls_key},
                                           [this](Request& request, ResponseWriter& response) {
                                             handle(request, response);
                                           }));
    url_ = reachable(server_->url());
    return Ok{};
  }

  // Requests may come before the jobs of the last run are taken over.
  void handle(Request& request, ResponseWriter& response) {
    if (api::ApiFront* front = ready_.load(std::memory_order_acquire))
      return wants_metrics(request) ? send_metrics(response) : front->handle(request, response);
    response.headers().set("Retry-After", "1");
    (void)response.send(503, "");
  }

  // Prometheus cannot sign; who asks from this machine may see.
  static bool wants_metrics(const Request& request) {
    const std::string_view from = request.peer_address();
    return request.method() == "GET" && request.target() == "/metrics" &&
           !request.headers().contains("authorization") &&
           (from.starts_with("127.") || from.starts_with("[::1]:"));
  }
  void send_metrics(ResponseWriter& response) {
    response.headers().set("Content-Type", "text/plain; version=0.0.4");
    (void)response.send(200, watch_->prometheus_text());
  }

  Status open_control() {
    engine::PlatformOptions options;
    options.home = home_.dir;
    options.yard_program = context_.bin_dir + "/yard";
    options.env = supervisor_env(context_);
    options.region = options_.region;
    options.store_endpoint = options_.store_url.empty() ? url_ : options_.store_url;
    options.store_credentials = job_variables();
    options.default_python = python_of_jobs(options_, context_);
    YARD_ASSIGN(options.config,
                engine::load_home_config(home_.config(), engine::cores_of_this_machine()));
    YARD_ASSIGN(control_, engine::PlatformControl::open(options));
    desk_ = std::make_unique<api::ControlDesk>(*control_);
    own_logs_ = std::make_unique<api::OwnLogs>(home_.own_logs());
    faults_ = std::make_unique<api::FaultInjection>(*desk_, Clock::real());
    YARD_ASSIGN(auto metrics, metrics::MetricStore::open({.path = home_.metrics()}));
    metrics_ = std::make_unique<metrics::MetricStore>(std::move(metrics));
    YARD_ASSIGN(auto queues, queue::MessageQueues::open({.path = home_.queues()}));
    queues_ = std::make_unique<queue::MessageQueues>(std::move(queues));
    watch_ = std::make_unique<JobWatch>(*control_, *metrics_);
    return Ok{};
  }

  std::map<std::string, std::string> job_variables() const {
    const auto user = users_->by_name(store_ ? api::kJobsUser : api::kStoreUser);
    std::map<std::string, std::string> variables = {
        {"AWS_ACCESS_KEY_ID", user->credentials.access_key},
        {"AWS_SECRET_ACCESS_KEY", user->credentials.secret_key},
        {"AWS_EC2_METADATA_DISABLED", "true"}};
    if (!options_.tls_certificate.empty())
      variables["AWS_CA_BUNDLE"] = std::filesystem::absolute(options_.tls_certificate);
    return variables;
  }

  Status answer_requests() {
    const api::Arns arns{options_.region, options_.account_id};
    api::ApiOptions options;
    options.account_id = options_.account_id;
    options.users = users_.get();
    options.audit = audit_.get();
    options.store = store_.get();
    options.requests_per_second = options_.requests_per_second;
    options.services = {
        api::make_sagemaker_service(*desk_, arns,
                                    [this](const engine::JobView& view, bool to_the_end) {
                                      return watch_->final_metrics(view, to_the_end);
                                    }),
        api::make_logs_service(*desk_, *own_logs_, arns),
        api::make_monitoring_service(*metrics_),
        api::make_sqs_service(*queues_, arns),
        api::make_sts_service(arns),
        api::make_iam_service(arns),
        api::make_yard_service(*desk_, *faults_, [this] { return watch_->live_hosts(); })};
    options.store_is_broken = [this] { return faults_->is_store_broken(); };
    front_ = std::make_unique<api::ApiFront>(std::move(options));
    ready_.store(front_.get(), std::memory_order_release);
    const bool is_tls = !options_.tls_certificate.empty();
    const ServedAt served{
        .url = url_,
        .region = options_.region,
        .account_id = options_.account_id,
        .store_url = options_.store_url,
        .ca_bundle_path =
            is_tls ? std::filesystem::absolute(options_.tls_certificate).string() : ""};
    return write_file_atomic(home_.serve_json(), to_json(served).dump(2) + "\n");
  }

  PlatformServeOptions options_;
  const Context& context_;
  const PlatformHome home_;
  std::unique_ptr<api::Users> users_;
  std::unique_ptr<api::AuditLog> audit_;
  std::unique_ptr<gateway::Gateway> store_;
  std::unique_ptr<engine::PlatformControl> control_;
  std::unique_ptr<api::ControlDesk> desk_;
  std::unique_ptr<api::FaultInjection> faults_;
  std::unique_ptr<api::OwnLogs> own_logs_;
  std::unique_ptr<metrics::MetricStore> metrics_;
  std::unique_ptr<queue::MessageQueues> queues_;
  std::unique_ptr<JobWatch> watch_;
  std::unique_ptr<api::ApiFront> front_;
  std::atomic<api::ApiFront*> ready_ = nullptr;
  std::unique_ptr<HttpServer> server_;
  std::string url_;
};

Status run_serve(const PlatformServeOptions& options, const Context& context) {
  raise_open_files_max();
  YARD_ASSIGN(const auto platform, Platform::start(options, context));
  fmt::print(
      "serving the platform at {}; Ctrl-C stops it, its jobs run on\n"
      "state and objects: {}\n"
      "for the AWS clients of this shell: eval \"$(yard env)\"\n",
      platform->url(), platform->home().dir);
  std::fflush(stdout);
  while (!context.stop.wait_for(std::chrono::hours(1))) {
  }
  return Ok{};
}

void add_options(CLI::App& command, PlatformServeOptions& options) {
  command.add_option("--listen", options.listen, "HOST:PORT; port 0: any free one")
      ->capture_default_str();
  command.add_option("--region", options.region, "in ARNs and for clients")->capture_default_str();
  command.add_option("--account-id", options.account_id, "12 digits, in ARNs and for clients")
      ->capture_default_str()
      ->check([](const std::string& text) -> std::string {
        const bool is_account =
            text.size() == 12 && text.find_first_not_of("0123456789") == text.npos;
        return is_account ? "" : "an account has 12 digits";
      });
  command.add_option("--bucket", options.bucket,
                     "where the SDKs put what they upload (default: sagemaker-REGION-ACCOUNT)");
  command.add_option("--s3-endpoint", options.store_url,
                     "URL of another S3 for the objects, with its key in AWS_ACCESS_KEY_ID and "
                     "AWS_SECRET_ACCESS_KEY");
  command.add_option("--python", options.python,
                     "virtual environment that jobs run in where yard.yaml names none");
  command
      .add_option("--requests-per-second", options.requests_per_second,
                  "of one key, beyond S3's; 0: any number")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  CLI::Option* certificate =
      command.add_option("--tls-certificate", options.tls_certificate, "PEM file; then https");
  CLI::Option* key = command.add_option("--tls-key", options.tls_key, "PEM file");
  key->needs(certificate);
  certificate->needs(key);
}

}  // namespace

void add_serve_command(CLI::App& app, Context& context) {
  auto options = std::make_shared<PlatformServeOptions>();
  CLI::App* command = app.add_subcommand(
      "serve", "run the platform: training jobs for AWS clients on this machine");
  add_options(*command, *options);
  command->footer(
      "Example:\n  yard serve --listen 127.0.0.1:8080 &\n  eval \"$(yard env)\"\n"
      "  python my_estimator_fit.py");
  command->callback([options, &context] {
    context.action = [options, &context] { return run_serve(*options, context); };
  });
}

}  // namespace yard::app
