#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/result.h"
#include "report/html.h"
#include "report/page_style_internal.h"
#include "report/run_charts.h"

namespace yard::report {
namespace {

// A page with many grids would be megabytes; the last is shown, of the others a few on request.
constexpr size_t kEarlierGridCountMax = 8;
constexpr size_t kEventCountMax = 400;

std::string tile(std::string_view value, std::string_view label) {
  return fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span></div>", escape_html(value),
                     escape_html(label));
}

double ledger_seconds(const JobFacts& facts) {
  double sum = 0;
  for (const LedgerEntry& entry : facts.ledger) sum += entry.seconds;
  return sum;
}

std::string money(const JobFacts& facts, double seconds) {
  return fmt::format("{:.4f}", facts.price_per_host_hour * seconds / 3600);
}

// Optimiser steps that count, by the time spent inside steps: recovery is told apart.
double mean_steps_per_second(const std::vector<Step>& steps) {
  double seconds = 0;
  for (const Step& step : steps) seconds += std::isfinite(step.step_s) ? step.step_s : 0;
  return static_cast<double>(steps.size()) / seconds;
}

double productive_ratio(const JobFacts& facts) {
  for (const LedgerEntry& entry : facts.ledger) {
    if (entry.name == "productive") return entry.seconds / ledger_seconds(facts);
  }
  return NAN;
}

std::string header(const JobFacts& facts, const RunHistory& history) {
  std::string out =
      fmt::format("<h1>{}", escape_html(facts.name.empty() ? "Training run" : facts.name));
  if (!facts.state.empty()) {
    const std::string state = escape_html(facts.state);
    out += fmt::format("<span class=\"state {}\">{}</span>", state, state);
  }
  out += "</h1><p class=\"sub\">" + escape_html(facts.model);
  if (!facts.model.empty() && !facts.command.empty()) out += " · ";
  out += escape_html(facts.command) + "</p><div class=\"tiles\">";
  const std::vector<Step> steps = surviving_steps(history);
  const double wall_s = facts.wall_s > 0 ? facts.wall_s : history.end_time - history.begin_time;
  out += tile(fmt::format("{}", history.rank_count), history.rank_count == 1 ? "rank" : "ranks");
  out += tile(format_seconds(wall_s), "wall time");
  out += tile(history.global_step_count == 0
                  ? fmt::format("{}", steps.size())
                  : fmt::format("{} / {}", steps.size(), history.global_step_count),
              "steps");
  out += tile(format_number(mean_steps_per_second(steps)), "steps per second of training");
  if (!facts.ledger.empty()) {
    out += tile(format_percent(productive_ratio(facts)), "utilisation: productive / wall time");
  }
  const int restarts = std::max(0, history.attempt_count - 1);
  out += tile(fmt::format("{}", restarts), restarts == 1 ? "restart" : "restarts");
  return out + "</div>";
}

std::string captioned_pictures(const SamplePictures& sample) {
  const bool whole = sample.data_uris.size() != sample.grid.prompts.size();
  std::string out = whole ? "<div class=\"pictures whole\">" : "<div class=\"pictures\">";
  for (size_t i = 0; i < sample.data_uris.size(); ++i) {
    std::string caption;
    for (size_t k = whole ? 0 : i; k < (whole ? sample.grid.prompts.size() : i + 1); ++k) {
      caption += (caption.empty() ? "" : " · ") + escape_html(sample.grid.prompts[k]);
    }
    out += fmt::format("<figure><img src=\"{}\" alt=\"{}\"><figcaption>{}</figcaption></figure>",
                       sample.data_uris[i], caption, caption);
  }
  return out + "</div>";
}

std::string bare_pictures(const SamplePictures& sample) {
  std::string out =
      fmt::format("<h4>step {}</h4><div class=\"pictures small\">", sample.grid.global_step);
  for (const std::string& uri : sample.data_uris) {
    out += fmt::format("<img src=\"{}\" alt=\"\">", uri);
  }
  return out + "</div>";
}

std::string earlier_grids(const std::vector<const SamplePictures*>& grids) {
  const size_t earlier = grids.size() - 1;
  if (earlier == 0) return {};
  const size_t shown = std::min(earlier, kEarlierGridCountMax);
  std::string out = fmt::format(
      "<details><summary>The same prompts earlier: {} of {} grids</summary>", shown, earlier);
  for (size_t i = 0; i < shown; ++i) out += bare_pictures(*grids[i * earlier / shown]);
  return out + "</details>";
}

std::string stage_pictures(const std::string& stage, const std::vector<SamplePictures>& samples) {
  std::vector<const SamplePictures*> grids;
  for (const SamplePictures& sample : samples) {
    if (sample.grid.stage == stage) grids.push_back(&sample);
  }
  if (grids.empty()) return "<p class=\"none\">No sample grid was written in this stage.</p>";
  const SamplePictures& last = *grids.back();
  std::string out =
      fmt::format("<div class=\"card\"><h3>Samples after step {}</h3>", last.grid.global_step);
  out += last.missing.empty() ? captioned_pictures(last)
                              : "<p class=\"none\">" + escape_html(last.missing) + "</p>";
  return out + earlier_grids(grids) + "</div>";
}

std::string stage_section(const RunHistory& history, const Stage& stage,
                          const std::vector<SamplePictures>& samples) {
  std::string out = fmt::format("<section><h2>Stage “{}”</h2><p class=\"sub\">{} steps",
                                escape_html(stage.name), stage.step_count);
  if (stage.resolution > 0) out += fmt::format(" at {0} × {0} pixels", stage.resolution);
  out += "</p>" + stage_pictures(stage.name, samples);
  return out + render_svg(loss_chart(history, stage)) + "</section>";
}

std::string_view ledger_class(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kClasses[] = {
      {"productive", "l-productive"}, {"startup", "l-startup"},
      {"data_wait", "l-data"},        {"comm_wait", "l-comm"},
      {"checkpoint", "l-checkpoint"}, {"evaluation", "l-evaluation"},
      {"lost_work", "l-lost"},        {"recovery", "l-recovery"}};
  for (const auto& [prefix, css_class] : kClasses) {
    if (name.starts_with(prefix)) return css_class;
  }
  return "l-other";
}

// "data_wait" -> "data wait": the ledger's keys are words.
std::string as_words(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

std::string ledger_row(const JobFacts& facts, const LedgerEntry& entry, double total_s) {
  const bool priced = facts.price_per_host_hour > 0;
  return fmt::format(
      "<tr><td><span class=\"swatch {}\"></span>{}</td><td class=\"n\">{:.1f}</td>"
      "<td class=\"n\">{}</td>{}</tr>",
      ledger_class(entry.name), escape_html(as_words(entry.name)), entry.seconds,
      format_percent(entry.seconds / total_s),
      priced ? "<td class=\"n\">" + money(facts, entry.seconds) + "</td>" : "");
}

std::string ledger_section(const JobFacts& facts) {
  std::string out = "<section><h2>Where every second went</h2>";
  const double total_s = ledger_seconds(facts);
  if (!(total_s > 0)) return out + "<p class=\"none\">This run has no ledger.</p></section>";
  const bool priced = facts.price_per_host_hour > 0;
  std::string bar;
  std::string rows;
  for (const LedgerEntry& entry : facts.ledger) {
    rows += ledger_row(facts, entry, total_s);
    if (!(entry.seconds > 0)) continue;
    bar += fmt::format("<i class=\"{}\" style=\"flex: {:.4f}\" title=\"{} {}\"></i>",
                       ledger_class(entry.name), entry.seconds / total_s,
                       escape_html(as_words(entry.name)), format_percent(entry.seconds / total_s));
  }
  out += "<div class=\"card\"><div class=\"bar\">" + bar +
         "</div><table><thead><tr><th>kind of time</th>";
  out += "<th class=\"n\">seconds, mean over ranks</th><th class=\"n\">share</th>";
  out += priced ? "<th class=\"n\">cost</th>" : "";
  out += "</tr></thead><tbody>" + rows + "</tbody><tfoot><tr><td>all</td>";
  out += fmt::format("<td class=\"n\">{:.1f}</td><td class=\"n\">100.0 %</td>", total_s);
  if (priced) out += "<td class=\"n\">" + money(facts, total_s) + "</td>";
  out += "</tr></tfoot></table>";
  if (priced) {
    out += fmt::format("<p class=\"none\">Cost: the host's seconds at {} an hour.</p>",
                       format_number(facts.price_per_host_hour));
  }
  return out + "</div></section>";
}

std::string_view event_name(EventKind kind) {
  switch (kind) {
    case EventKind::kStart:
      return "start";
    case EventKind::kResume:
      return "resume";
    case EventKind::kStage:
      return "stage";
    case EventKind::kCheckpoint:
      return "checkpoint";
    case EventKind::kFinish:
      return "finish";
    case EventKind::kError:
      return "error";
  }
  YARD_UNREACHABLE();
}

std::string event_text(const Event& event) {
  const std::string text = escape_html(event.text);
  switch (event.kind) {
    case EventKind::kStart:
      return fmt::format("rank {} of attempt {} began", event.rank, event.attempt + 1);
    case EventKind::kResume:
      return fmt::format("from step {}, stage {}", event.global_step, text);
    case EventKind::kStage:
      return text;
    case EventKind::kCheckpoint:
      return fmt::format("step {}, training stood still {}", event.global_step,
                         format_seconds(event.seconds));
    case EventKind::kFinish:
      return fmt::format("step {}: {}", event.global_step, text);
    case EventKind::kError:
      return fmt::format("rank {}: {}", event.rank, text);
  }
  YARD_UNREACHABLE();
}

struct EventRow {
  double time;
  std::string name;
  std::string css_class;
  std::string text;  // escaped
};

const Recovery* recovery_into(const RunHistory& history, int attempt) {
  for (const Recovery& recovery : history.recoveries) {
    if (recovery.attempt == attempt) return &recovery;
  }
  return nullptr;
}

EventRow rank_row(const RunHistory& history, const Event& event) {
  const char* css_class = event.kind == EventKind::kError    ? "event-bad"
                          : event.kind == EventKind::kFinish ? "event-good"
                                                             : "";
  std::string text = event_text(event);
  const Recovery* recovery = recovery_into(history, event.attempt);
  if (event.kind == EventKind::kResume && recovery != nullptr) {
    text += fmt::format("; {} steps done again; {} from the last step before to the first after",
                        recovery->lost_step_count, format_seconds(recovery->seconds));
  }
  return {event.time, std::string(event_name(event.kind)), css_class, std::move(text)};
}

std::vector<EventRow> event_rows(const JobFacts& facts, const RunHistory& history) {
  std::vector<EventRow> rows;
  for (const Event& event : history.events) rows.push_back(rank_row(history, event));
  for (const SupervisorEvent& event : facts.events) {
    rows.push_back({event.time, escape_html(event.name), event.bad ? "event-bad" : "",
                    escape_html(event.text)});
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const EventRow& a, const EventRow& b) { return a.time < b.time; });
  return rows;
}

std::string events_section(const JobFacts& facts, const RunHistory& history) {
  const std::vector<EventRow> rows = event_rows(facts, history);
  std::string out = "<section><h2>Events</h2>";
  if (rows.empty()) return out + "<p class=\"none\">Nothing was reported.</p></section>";
  out +=
      "<div class=\"card scroll\"><table><thead><tr><th class=\"n\">after</th><th>event</th>"
      "<th>what</th></tr></thead><tbody>";
  const size_t shown = std::min(rows.size(), kEventCountMax);
  const double begin_time = std::min(history.begin_time, rows.front().time);
  for (size_t i = 0; i < shown; ++i) {
    out += fmt::format(
        "<tr><td class=\"n\">{}</td><td class=\"{}\">{}</td><td class=\"text\">{}</td></tr>",
        format_seconds(rows[i].time - begin_time), rows[i].css_class, rows[i].name, rows[i].text);
  }
  out += "</tbody></table>";
  if (shown < rows.size()) {
    out += fmt::format("<p class=\"none\">and {} more</p>", rows.size() - shown);
  }
  return out + "</div></section>";
}

std::string recipe_section(const JobFacts& facts) {
  if (facts.recipe.empty()) return {};
  return "<section><h2>Recipe</h2><details class=\"card\"><summary>recipe.yaml as it was run"
         "</summary><pre>" +
         escape_html(facts.recipe) + "</pre></details></section>";
}

std::string footer(const RunHistory& history) {
  std::string out = "<footer>Made by <b>yard report</b> from the heartbeats of the ranks.";
  if (history.unreadable_line_count > 0) {
    out += fmt::format(" {} damaged heartbeat lines were left out.", history.unreadable_line_count);
  }
  return out + "</footer>";
}

}  // namespace

std::string render_document(std::string_view title, std::string_view body) {
  std::string out =
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>" +
      escape_html(title) +
      "</title><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><style>";
  out += kPageStyle;
  out += "</style></head><body><main>";
  out += body;
  return out + "</main></body></html>\n";
}

std::string render_sections(const JobFacts& facts, const RunHistory& history,
                            const std::vector<SamplePictures>& samples) {
  std::string out;
  for (const Stage& stage : history.stages) out += stage_section(history, stage, samples);
  out += "<section><h2>Speed and waiting</h2><div class=\"charts\">" +
         render_svg(speed_chart(history)) + render_svg(wait_chart(history)) + "</div></section>";
  return out + ledger_section(facts) + events_section(facts, history) + recipe_section(facts);
}

std::string render_page(const JobFacts& facts, const RunHistory& history,
                        const std::vector<SamplePictures>& samples) {
  return render_document(
      facts.name.empty() ? "Training run" : facts.name,
      header(facts, history) + render_sections(facts, history, samples) + footer(history));
}

}  // namespace yard::report
