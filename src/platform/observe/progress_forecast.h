// When a job will end, from what its log says of its progress: "step 120/1000", a bar of tqdm,
// "Epoch [2/10] iter 30/500". Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "jobs/progress_line.h"
#include "logs/log_stream.h"

namespace yard::observe {

using jobs::progress_of_line;
using jobs::ProgressMark;

struct ProgressForecast {
  double done = 0;
  double total = 0;
  double per_second = 0;  // the steady rate
  double end_t = 0;       // Unix seconds
};

// From marks in the order of their times. Only those since the last restart count, which sets
// `done` back or changes `total`; of them the first tenth of the time is left out, for it warms up,
// and the rate is the median over stretches of the rest, so that a pause for a checkpoint or an
// evaluation does not bend it. nullopt: fewer than three marks, or nothing moved.
std::optional<ProgressForecast> forecast_of(const std::vector<ProgressMark>& marks);

// What the forecast at a share of the progress was worth, once the end is known.
struct ForecastError {
  double at_share = 0;       // of the progress: 0.1
  double forecast_s = 0;     // from the first mark to the end, as it said then
  double actual_s = 0;       // as it came
  double error_percent = 0;  // of the actual time; above 0: it said too much
};
// At 10, 25, 50 and 75 %, as far as there was a forecast. `end_t`: when the work ended.
std::vector<ForecastError> forecast_errors(const std::vector<ProgressMark>& marks, double end_t);

// The marks of a whole log stream. Of one beyond `bytes_max` the middle is not read. The codes of
// LogReader.
Result<std::vector<ProgressMark>> progress_of_log(const logs::LogReader& reader,
                                                  uint64_t bytes_max = uint64_t{64} << 20);

}  // namespace yard::observe
