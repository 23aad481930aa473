// yard report: a web page about a job.
#include <cstdio>
#include <filesystem>
#include <memory>

#include "commands.h"
#include "report/report.h"

namespace yard::app {
namespace {

struct ReportArguments {
  std::string job;
  std::string path;
};

// A job's name comes first: a folder of that name may lie in the working directory by chance.
std::string job_dir_of(const ReportArguments& arguments, const Context& context) {
  std::error_code error;
  const std::string of_name = context.yard_home + "/jobs/" + arguments.job;
  const bool is_name = arguments.job.find('/') == std::string::npos;
  if (is_name && std::filesystem::is_directory(of_name, error)) return of_name;
  const std::string of_pipeline = context.yard_home + "/pipelines/" + arguments.job;
  if (is_name && std::filesystem::is_directory(of_pipeline, error)) return of_pipeline;
  return std::filesystem::is_directory(arguments.job, error) ? arguments.job : of_name;
}

}  // namespace

void add_report_command(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<ReportArguments>();
  CLI::App* command = app.add_subcommand("report", "write a web page about a job or a pipeline");
  command->add_option("job", arguments->job, "name of the job or pipeline, or its folder")
      ->required();
  command->add_option("out", arguments->path, "HTML file to write")->required();
  command->callback([arguments, &context] {
    context.action = [arguments, &context]() -> Status {
      YARD_TRY(report::write_any_report(job_dir_of(*arguments, context), arguments->path));
      std::printf("%s\n", arguments->path.c_str());
      return Ok{};
    };
  });
}

}  // namespace yard::app
