// Which curves a report shows, and how they are made of the ranks' steps. Pure.
#pragma once

#include <string>

#include "report/run_history.h"
#include "report/svg_chart.h"

namespace yard::report {

// Training loss (each step faint, smoothed in full) and held-out loss over the steps of a stage;
// a restart is a marker.
Chart loss_chart(const RunHistory& history, const Stage& stage);
// Steps per second over the time of the run, with stages and restarts as markers. The line is
// broken where no rank trained.
Chart speed_chart(const RunHistory& history);
// Shares of a step's time that rank 0 waited for data and for its peers.
Chart wait_chart(const RunHistory& history);

}  // namespace yard::report
