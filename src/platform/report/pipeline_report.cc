#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/file.h"
#include "base/json.h"
#include "report/forecast.h"
#include "report/html.h"
#include "report/job_folder_internal.h"
#include "report/report.h"

namespace yard::report {
namespace {

struct StepFacts {
  std::string name;
  std::string kind;
  std::string status;
  std::string failure;
  int host_count = 1;
  size_t job_count = 0;
  double price_per_host_hour = 0;
  double started_t = 0;
  double ended_t = 0;
  double held_s = 0;
  std::optional<JobFolder> record;  // of a training step

  double cost() const { return held_s / 3600 * price_per_host_hour * host_count; }
};

Result<StepFacts> step_from(const Json& json, const std::string& dir, const std::string& what) {
  StepFacts step;
  YARD_ASSIGN(step.name, json_field<std::string>(json, "name", what));
  YARD_ASSIGN(step.kind, json_field<std::string>(json, "kind", what));
  YARD_ASSIGN(step.status, json_field<std::string>(json, "status", what));
  YARD_ASSIGN(step.failure, json_field_or<std::string>(json, "failure", "", what));
  YARD_ASSIGN(step.host_count, json_field<int>(json, "hosts", what));
  YARD_ASSIGN(const auto jobs, json_field<std::vector<std::string>>(json, "jobs", what));
  step.job_count = jobs.size();
  YARD_ASSIGN(step.price_per_host_hour, json_field<double>(json, "price_per_host_hour", what));
  YARD_ASSIGN(step.started_t, json_field<double>(json, "started_t", what));
  YARD_ASSIGN(step.ended_t, json_field<double>(json, "ended_t", what));
  YARD_ASSIGN(step.held_s, json_field<double>(json, "held_s", what));
  if (step.kind != "train") return step;
  auto record = read_job_folder(fmt::format("{}/steps/{}", dir, step.name));
  if (record) step.record = *std::move(record);
  return step;
}

std::string cell(std::string_view text, bool is_number = true) {
  return fmt::format("<td{}>{}</td>", is_number ? " class=\"n\"" : "", escape_html(text));
}

std::string row(const StepFacts& step) {
  std::string out =
      "<tr>" + cell(step.name, false) + cell(step.kind, false) +
      cell(step.failure.empty() ? step.status : step.status + ": " + step.failure, false) +
      cell(fmt::format("{}", step.host_count)) + cell(fmt::format("{}", step.job_count)) +
      cell(step.ended_t > 0 ? format_seconds(step.ended_t - step.started_t) : "–") +
      cell(format_seconds(step.held_s * step.host_count)) +
      cell(fmt::format("{:.4f}", step.cost()));
  if (!step.record) return out + cell("–") + cell("–") + cell("–") + cell("–") + "</tr>";
  const TimeShares shares = time_shares(step.record->history);
  return out + cell(format_number(shares.steps_per_s)) + cell(format_percent(shares.compute)) +
         cell(format_percent(shares.data_wait)) + cell(format_percent(shares.comm_wait)) + "</tr>";
}

std::string step_table(const std::vector<StepFacts>& steps) {
  std::string out =
      "<section><h2>Steps</h2><div class=\"card scroll\"><table><thead><tr><th>step</th>"
      "<th>kind</th><th>outcome</th><th class=\"n\">hosts</th><th class=\"n\">jobs</th>"
      "<th class=\"n\">time</th><th class=\"n\">host time</th><th class=\"n\">cost</th>"
      "<th class=\"n\">it/s</th><th class=\"n\">compute</th><th class=\"n\">data wait</th>"
      "<th class=\"n\">peer wait</th></tr></thead><tbody>";
  for (const StepFacts& step : steps) out += row(step);
  return out +
         "</tbody></table><p class=\"none\">compute, data wait and peer wait: shares of rank "
         "0's time inside steps. Host time: seconds that hosts were held, times hosts; its "
         "cost at each step's price.</p></div></section>";
}

std::string forecast_table(const std::vector<StepFacts>& steps) {
  std::string rows;
  for (const StepFacts& step : steps) {
    if (!step.record) continue;
    for (const StageForecast& each : stage_forecasts(step.record->history)) {
      const double error = (each.forecast_s - each.actual_s) / each.actual_s;
      rows += "<tr>" + cell(step.name, false) + cell(each.stage, false) +
              cell(fmt::format("{}", each.step_count)) + cell(format_seconds(each.forecast_s)) +
              cell(format_seconds(each.actual_s)) + cell(fmt::format("{:+.1f} %", 100 * error)) +
              "</tr>";
    }
  }
  if (rows.empty()) return {};
  return "<section><h2>Forecast and actual</h2><div class=\"card scroll\"><table><thead><tr>"
         "<th>step</th><th>stage</th><th class=\"n\">optimiser steps</th>"
         "<th class=\"n\">forecast</th><th class=\"n\">actual</th><th class=\"n\">error</th>"
         "</tr></thead><tbody>" +
         rows +
         "</tbody></table><p class=\"none\">The forecast is made by the median of the stage's "
         "first "
         "twentieth of steps; both are the time inside steps.</p></div></section>";
}

// Recoveries, and whether each planned step was done.
std::string recovery_section(const std::vector<StepFacts>& steps) {
  std::string rows;
  for (const StepFacts& step : steps) {
    if (!step.record) continue;
    for (const SupervisorEvent& event : step.record->facts.events)
      if (event.bad || event.name == "recovered")
        rows += "<tr>" + cell(step.name, false) + cell(event.name, false) +
                cell(event.text, false) + "</tr>";
    for (const Recovery& recovery : step.record->history.recoveries)
      rows += "<tr>" + cell(step.name, false) + cell("resumed", false) +
              cell(fmt::format("from the checkpoint of step {}; {} steps done again; {} from the "
                               "last sign before to the first new step",
                               recovery.resumed_step, recovery.lost_step_count,
                               format_seconds(recovery.seconds)),
                   false) +
              "</tr>";
  }
  if (rows.empty()) return {};
  return "<section><h2>What went wrong, and what became of it</h2><div class=\"card "
         "scroll\"><table>"
         "<tbody>" +
         rows + "</tbody></table></div></section>";
}

// Of all training steps together: how many different global steps count, and the largest.
std::pair<size_t, int64_t> counted_steps(const std::vector<StepFacts>& steps) {
  std::vector<int64_t> numbers;
  int64_t planned = 0;
  for (const StepFacts& step : steps) {
    if (!step.record) continue;
    planned = std::max(planned, step.record->history.global_step_count);
    for (const Step& each : step.record->history.steps) numbers.push_back(each.global_step);
  }
  std::ranges::sort(numbers);
  const auto repeated = std::ranges::unique(numbers);
  return {numbers.size() - repeated.size(), planned};
}

std::string tile(std::string_view value, std::string_view label) {
  return fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span></div>", escape_html(value),
                     escape_html(label));
}

std::string pipeline_header(const std::string& name, const std::vector<StepFacts>& steps) {
  double begin_t = 0;
  double end_t = 0;
  double host_s = 0;
  double cost = 0;
  size_t done = 0;
  for (const StepFacts& step : steps) {
    if (step.started_t > 0 && (begin_t == 0 || step.started_t < begin_t)) begin_t = step.started_t;
    end_t = std::max(end_t, step.ended_t);
    host_s += step.held_s * step.host_count;
    cost += step.cost();
    done += step.status == "completed" ? 1 : 0;
  }
  const auto [counted, planned] = counted_steps(steps);
  const bool is_whole = done == steps.size();
  std::string out = fmt::format("<h1>{}<span class=\"state {}\">{}</span></h1>", escape_html(name),
                                is_whole ? "succeeded" : "", is_whole ? "completed" : "not ended");
  out += "<p class=\"sub\">pipeline: each step a job of the platform</p><div class=\"tiles\">";
  out += tile(fmt::format("{} / {}", done, steps.size()), "steps of the pipeline");
  out += tile(format_seconds(std::max(0.0, end_t - begin_t)), "wall time");
  out += tile(format_seconds(host_s), "host time");
  out += tile(fmt::format("{:.4f}", cost), "cost");
  if (planned > 0)
    out +=
        tile(fmt::format("{} / {}", counted, planned), "optimiser steps done, each counted once");
  return out + "</div>";
}

}  // namespace

Result<std::string> make_pipeline_report(const std::string& pipeline_dir) {
  const std::string path = pipeline_dir + "/pipeline.json";
  YARD_ASSIGN(const std::string text, read_file(path));
  YARD_ASSIGN(const Json json, parse_json(text, path));
  YARD_ASSIGN(const auto name, json_field<std::string>(json, "name", path));
  YARD_ASSIGN(const Json list, json_field<Json>(json, "steps", path));
  std::vector<StepFacts> steps;
  for (const Json& item : list) {
    YARD_ASSIGN(StepFacts step, step_from(item, pipeline_dir, path));
    steps.push_back(std::move(step));
  }
  std::string body = pipeline_header(name, steps) + step_table(steps) + recovery_section(steps) +
                     forecast_table(steps);
  // The last first: its pictures are the outcome.
  for (auto step = steps.rbegin(); step != steps.rend(); ++step)
    if (step->record)
      body += fmt::format("<section><h1>{}</h1>", escape_html(step->name)) +
              render_sections(step->record->facts, step->record->history, step->record->samples) +
              "</section>";
  body += "<footer>Made by <b>yard report</b> from what the platform and the ranks told.</footer>";
  return render_document(name, body);
}

Status write_any_report(const std::string& dir, const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(dir + "/pipeline.json", error)) return write_report(dir, path);
  Result<std::string> page = make_pipeline_report(dir);
  if (!page) return std::move(page).error().while_("making the report");
  return write_file_atomic(path, *page);
}

}  // namespace yard::report
