// The report as one HTML page: no script, nothing loaded from elsewhere. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/run_history.h"

namespace yard::report {

// One kind of time in the job's ledger; the entries of a ledger add up to its whole time.
struct LedgerEntry {
  std::string name;
  double seconds = 0;  // mean over ranks
};

// A line of the supervisor's record that a reader of the report wants to see.
struct SupervisorEvent {
  double time = 0;  // Unix seconds
  std::string name;
  bool bad = false;
  std::string text;
};

// What the platform, not a rank, knows about the job. Empty or zero: not known.
struct JobFacts {
  std::string name;
  std::string state;
  std::string command;
  std::string model;   // "UNet2DConditionModel + AutoencoderKL + CLIPTextModel"
  std::string recipe;  // its text
  double wall_s = 0;
  std::vector<LedgerEntry> ledger;
  double price_per_host_hour = 0;
  std::vector<SupervisorEvent> events;
};

// A grid's pictures as data URIs, one per prompt; a single one when it could not be cut.
struct SamplePictures {
  SampleGrid grid;
  std::vector<std::string> data_uris;
  std::string missing;  // why there is no picture; empty when there is
};

// A page around `body`, which is HTML.
std::string render_document(std::string_view title, std::string_view body);
// A job's sections: stages with their pictures and losses, speed, ledger, events, recipe.
std::string render_sections(const JobFacts& facts, const RunHistory& history,
                            const std::vector<SamplePictures>& samples);
std::string render_page(const JobFacts& facts, const RunHistory& history,
                        const std::vector<SamplePictures>& samples);

}  // namespace yard::report
