// yard s3 serve, env: a folder served as an S3 endpoint.
#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/file.h"
#include "base/log.h"
#include "base/open_files.h"
#include "commands.h"
#include "endpoint.h"
#include "events_to_queues.h"
#include "gateway/credentials.h"
#include "gateway/gateway.h"
#include "gateway/root.h"
#include "net/http_server.h"

namespace yard::app {
namespace {

constexpr std::chrono::seconds kStopGrace{10};

struct ServeOptions {
  std::string folder;
  std::string listen = "127.0.0.1:9000";
  std::string domain;
  std::string region = "us-east-1";
  std::string account_id;
  std::string tls_certificate;
  std::string tls_key;
  std::string events;
};

std::string endpoint_path(const std::string& folder) {
  return folder + "/.yard/endpoint";
}

// Where clients find the server. On a full disk, what is said already is not written again, so that
// the folder can be served, and emptied.
Status write_endpoint(const std::string& folder, const std::string& url,
                      const std::string& region) {
  const std::string text = fmt::format("{}\n{}\n", url, region);
  if (const auto old = read_file(endpoint_path(folder)); old && *old == text) return Ok{};
  return write_file_atomic(endpoint_path(folder), text);
}

Status run_serve(ServeOptions options, const Context& context) {
  raise_open_files_max();
  options.folder = std::filesystem::absolute(options.folder).lexically_normal().string();
  YARD_ASSIGN(const HostPort listen, parse_listen(options.listen));
  const std::string own_folder = options.folder + "/.yard";
  struct stat info = {};
  if (::stat(options.folder.c_str(), &info) != 0) return errno_error(options.folder, errno);
  if (!S_ISDIR(info.st_mode))
    return Error{Code::kInvalidArgument, options.folder + ": is no folder"};
  YARD_TRY(gateway::check_not_nested(options.folder));
  YARD_TRY(make_directories(own_folder));
  if (::chmod(own_folder.c_str(), 0700) != 0) return errno_error(own_folder, errno);
  YARD_ASSIGN(const Credentials credentials, gateway::load_or_make_credentials(options.folder));
  gateway::EventSink events;
  if (!options.events.empty()) {
    YARD_ASSIGN(events, events_into_queues(options.events));
  }
  YARD_ASSIGN(const auto served, gateway::Gateway::open({.root = options.folder,
                                                         .credentials = credentials,
                                                         .domain = options.domain,
                                                         .region = options.region,
                                                         .account_id = options.account_id,
                                                         .event_sink = std::move(events)}));
  YARD_ASSIGN(const auto server, HttpServer::start({.host = listen.host,
                                                    .port = listen.port,
                                                    .tls_certificate_path = options.tls_certificate,
                                                    .tls_key_path = options.tls_key},
                                                   served->handler()));
  const std::string url = server->url();
  YARD_TRY(write_endpoint(options.folder, url, options.region));
  fmt::print(
      "serving {} as S3 at {}; Ctrl-C stops\n"
      "for the AWS clients of this shell: eval \"$(yard s3 env '{}')\"\n",
      options.folder, url, options.folder);
  std::fflush(stdout);
  while (!context.stop.wait_for(std::chrono::hours(1))) {
  }
  server->stop(kStopGrace);
  return Ok{};
}

// In "yard s3 serve DIR & eval "$(yard s3 env DIR)"" the first has not said yet where it listens,
// or what stands there is of one that has ended.
Result<std::string> wait_for_endpoint(const std::string& folder, const Context& context) {
  struct stat info = {};
  if (::stat(folder.c_str(), &info) != 0) return errno_error(folder, errno);
  auto endpoint = wait_for_server(
      endpoint_path(folder),
      [](const std::string& text) { return text.substr(0, text.find('\n')); },
      fmt::format("'yard s3 serve {}' starts one", folder), context.stop);
  if (endpoint || endpoint.error().code != Code::kNotFound) return endpoint;
  return std::move(endpoint).error().while_("'yard s3 serve' has not served this folder yet");
}

Status run_env(const std::string& folder, const Context& context) {
  YARD_ASSIGN(const std::string endpoint, wait_for_endpoint(folder, context));
  YARD_ASSIGN(const Credentials credentials, gateway::load_credentials(folder));
  const size_t line = endpoint.find('\n');
  const std::string url = endpoint.substr(0, line);
  std::string region = line == endpoint.npos ? "" : endpoint.substr(line + 1);
  region = region.substr(0, region.find('\n'));
  for (const auto& [name, value] :
       {std::pair("AWS_ENDPOINT_URL_S3", url),
        std::pair("AWS_ACCESS_KEY_ID", credentials.access_key),
        std::pair("AWS_SECRET_ACCESS_KEY", credentials.secret_key), std::pair("AWS_REGION", region),
        std::pair("AWS_DEFAULT_REGION", region)})
    fmt::print("export {}={}\n", name, shell_quoted(value));
  fmt::print("unset AWS_SESSION_TOKEN AWS_PROFILE\n");
  return Ok{};
}

void add_serve(CLI::App& group, Context& context) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command = group.add_subcommand(
      "serve", "serve a folder: each of its sub-folders is a bucket, each file an object");
  command->add_option("DIR", options->folder)->required();
  command->add_option("--listen", options->listen, "HOST:PORT; port 0: any free one")
      ->capture_default_str();
  command->add_option("--domain", options->domain, "hosts BUCKET.DOMAIN name a bucket, too");
  command->add_option("--region", options->region, "what clients are told")->capture_default_str();
  command->add_option("--account-id", options->account_id,
                      "refuse requests that expect another owner of the bucket");
  CLI::Option* certificate =
      command->add_option("--tls-certificate", options->tls_certificate, "PEM file; then https");
  command->add_option("--events", options->events,
                      "file of message queues that buckets' notifications go to");
  command->add_option("--tls-key", options->tls_key, "PEM file")->needs(certificate);
  command->footer(
      "Example:\n  yard s3 serve /srv/data --listen 127.0.0.1:9000 &\n"
      "  eval \"$(yard s3 env /srv/data)\"\n  aws s3 mb s3://pictures\n"
      "  aws s3 sync ./pictures s3://pictures");
  command->callback([options, &context] {
    context.action = [options, &context] { return run_serve(*options, context); };
  });
}

void add_env(CLI::App& group, Context& context) {
  auto folder = std::make_shared<std::string>();
  CLI::App* command =
      group.add_subcommand("env", "print the exports that point AWS clients at a served folder");
  command->add_option("DIR", *folder)->required();
  command->footer("Example:\n  eval \"$(yard s3 env /srv/data)\"");
  command->callback([folder, &context] {
    context.action = [folder, &context] { return run_env(*folder, context); };
  });
}

}  // namespace

void add_s3_commands(CLI::App& app, Context& context) {
  CLI::App* group = app.add_subcommand("s3", "serve a folder as S3, and look after buckets");
  group->require_subcommand(1);
  add_serve(*group, context);
  add_env(*group, context);
  add_s3_uploads_command(*group, context);
}

}  // namespace yard::app
