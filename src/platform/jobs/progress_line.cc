#include "jobs/progress_line.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <string>
#include <vector>

namespace yard::jobs {
namespace {

constexpr size_t kWordDistanceMax = 12;  // between "step" and its number: "Step [   12/100]"
constexpr size_t kLineBytesRead = 4096;
constexpr std::array<std::string_view, 6> kStepWords = {"step",  "iter",   "iteration",
                                                        "batch", "update", "it"};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// A pair of numbers in a line, and where it stands.
struct CountInLine {
  double done = 0;
  double total = 0;
  size_t begin = 0;
  size_t end = 0;
};

// The number that begins at `at`, which moves behind it.
std::optional<double> take_number(std::string_view line, size_t& at) {
  const size_t begin = at;
  while (at < line.size() && is_digit(line[at])) ++at;
  uint64_t value = 0;
  const auto [end, failed] = std::from_chars(line.data() + begin, line.data() + at, value);
  if (at == begin || failed != std::errc() || end != line.data() + at) return std::nullopt;
  return static_cast<double>(value);
}

// "/" or " of " between two numbers, spaces around it allowed.
bool skip_separator(std::string_view line, size_t& at) {
  const size_t begin = at;
  while (at < line.size() && line[at] == ' ') ++at;
  if (at < line.size() && line[at] == '/')
    ++at;
  else if (line.substr(at, 3) == "of " && at > begin)
    at += 3;
  else
    return false;
  while (at < line.size() && line[at] == ' ') ++at;
  return true;
}

std::vector<CountInLine> counts_in(std::string_view line) {
  std::vector<CountInLine> counts;
  for (size_t at = 0; at < line.size();) {
    if (!is_digit(line[at])) {
      ++at;
      continue;
    }
    // A date, a path or a fraction is no count: "2026/11/30", "a1/2", "0.5/1".
    const bool is_inside = at > 0 && (std::isalpha(static_cast<unsigned char>(line[at - 1])) != 0 ||
                                      line[at - 1] == '.' || line[at - 1] == '/');
    CountInLine count{.begin = at};
    const auto done = take_number(line, at);
    size_t behind = at;
    if (!done || is_inside || !skip_separator(line, behind)) continue;
    const auto total = take_number(line, behind);
    if (!total) continue;
    at = behind;
    const bool goes_on =
        at < line.size() &&
        (line[at] == '/' || (line[at] == '.' && at + 1 < line.size() && is_digit(line[at + 1])));
    if (goes_on || *done > *total || *total < 2) continue;
    counts.push_back({*done, *total, count.begin, at});
  }
  return counts;
}

// The last word before `end`, in small letters, its plural s left out.
std::string word_before(std::string_view line, size_t end) {
  size_t stop = end;
  while (stop > 0 && end - stop < kWordDistanceMax &&
         std::isalpha(static_cast<unsigned char>(line[stop - 1])) == 0)
    --stop;
  size_t start = stop;
  while (start > 0 && std::isalpha(static_cast<unsigned char>(line[start - 1])) != 0) --start;
  std::string word(line.substr(start, stop - start));
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (word.size() > 4 && word.ends_with('s')) word.pop_back();
  return word;
}

// "| 12/100 [00:05<00:44,  2.00it/s]"
bool is_bar(std::string_view line, const CountInLine& count) {
  const std::string_view behind = line.substr(count.end);
  return behind.starts_with(" [") && behind.find('<') != std::string_view::npos;
}

bool is_step_word(const std::string& word) {
  return std::ranges::find(kStepWords, word) != kStepWords.end();
}

}  // namespace

std::optional<ProgressMark> progress_of_line(double t, std::string_view line) {
  line = line.substr(0, kLineBytesRead);
  std::optional<CountInLine> steps, epochs;
  for (const CountInLine& count : counts_in(line)) {
    const std::string word = word_before(line, count.begin);
    if (word == "epoch")
      epochs = count;
    else if (is_step_word(word) || (!steps && is_bar(line, count)))
      steps = count;
  }
  if (!steps && !epochs) return std::nullopt;
  if (!epochs) return ProgressMark{t, steps->done, steps->total};
  if (!steps) return ProgressMark{t, epochs->done, epochs->total};
  // Epochs that begin with 0 and those that begin with 1 differ by what is before the first step.
  const double before = std::max(0.0, epochs->done - (epochs->done > 0 ? 1 : 0));
  return ProgressMark{t, before + steps->done / steps->total, epochs->total};
}

}  // namespace yard::jobs
