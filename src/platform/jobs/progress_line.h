// How far a program says that it is, in a line of its log: "step 120/1000", a bar of tqdm,
// "Epoch [2/10] iter 30/500". Pure.
#pragma once

#include <optional>
#include <string_view>

namespace yard::jobs {

struct ProgressMark {
  double t = 0;     // Unix seconds
  double done = 0;  // in steps, or in epochs with the fraction that the steps of one say
  double total = 0;
};

// What one line says; nullopt: nothing. A count is "N/M" or "N of M", 0 <= N <= M, beside a word
// for what is counted (step, iter, batch, update, epoch) or as the head of a bar of tqdm.
std::optional<ProgressMark> progress_of_line(double t, std::string_view line);

}  // namespace yard::jobs
