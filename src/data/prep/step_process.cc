#include "prep/step_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "base/file.h"
#include "base/log.h"
#include "base/subprocess.h"
#include "base/units.h"
#include "prep/text_fields.h"

namespace yard::prep {
namespace {

constexpr size_t kReasonBytesMax = 500;

using Time = std::chrono::steady_clock::time_point;

std::string ending(Subprocess& process) {
  const auto exit = process.wait(std::chrono::milliseconds(200));
  if (!exit) return "it closed its output";
  if (exit->signal != 0) return fmt::format("it was killed by signal {}", exit->signal);
  return fmt::format("it ended with exit code {}", exit->code);
}

}  // namespace

Result<StepAnswer> step_answer_from(const Json& answer) {
  StepAnswer out;
  YARD_ASSIGN(out.fields, json_field_or<Json>(answer, "fields", Json::object(), "answer"));
  if (!out.fields.is_object())
    return Error{Code::kInvalidArgument, "answer: 'fields' is not an object"};
  YARD_ASSIGN(const auto drop, json_field_or<std::string>(answer, "drop", "", "answer"));
  YARD_ASSIGN(const auto error, json_field_or<std::string>(answer, "error", "", "answer"));
  out.drop = clean_text(drop, kReasonBytesMax).text;
  out.error = clean_text(error, kReasonBytesMax).text;
  return out;
}

struct StepProcess::Running {
  UniqueFd socket;  // a socket, not a pipe: writing to a program that has ended is then no signal
  UniqueFd output;
  Subprocess process;
  std::string unread;  // of its output, less than a line
};

struct StepProcess::Batch {
  const std::vector<StepRequest>& requests;
  std::vector<size_t> asked;  // positions in requests
  std::vector<std::optional<StepAnswer>> answers;
  uint64_t first_id = 0;
  size_t missing = 0;
  std::string input;
  size_t written = 0;
  std::string failure;
};

StepProcess::StepProcess(StepSpec spec, std::map<std::string, std::string> env)
    : spec_(std::move(spec)), env_(std::move(env)) {}
StepProcess::~StepProcess() = default;

Status StepProcess::start() {
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
    return errno_error("step " + spec_.name, errno);
  UniqueFd ours(sockets[0]);
  UniqueFd theirs(sockets[1]);
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC) != 0) return errno_error("step " + spec_.name, errno);
  UniqueFd output(pipe_fds[0]);
  UniqueFd their_output(pipe_fds[1]);
  if (::fcntl(ours.get(), F_SETFL, O_NONBLOCK) != 0 ||
      ::fcntl(output.get(), F_SETFL, O_NONBLOCK) != 0)
    return errno_error("step " + spec_.name, errno);
  SubprocessOptions options;
  options.argv = spec_.command;
  options.env = env_;
  options.stdin_fd = theirs.get();
  options.stdout_fd = their_output.get();
  options.kill_with_parent = true;
  auto process = Subprocess::spawn(options);
  if (!process) return std::move(process).error().while_("starting step " + spec_.name);
  running_ = std::make_unique<Running>(
      Running{std::move(ours), std::move(output), *std::move(process), {}});
  if (was_started_) ++counts_.restarts;
  was_started_ = true;
  return Ok{};
}

void StepProcess::take_line(std::string_view line, Batch& batch) {
  const auto garbage = [&](std::string_view why) {
    if (++counts_.garbage_lines <= 10)
      log_warning("step {}: a line of its output is no answer: {}: {}", spec_.name, why,
                  clean_text(line, 200).text);
  };
  if (line.find_first_not_of(" \t\r") == line.npos) return;
  const auto json = parse_json(line, "line");
  if (!json) return garbage("no JSON");
  const auto id = json_field<uint64_t>(*json, "id", "line");
  if (!id) return garbage("no id");
  if (*id < batch.first_id || *id - batch.first_id >= batch.asked.size())
    return garbage("an id that was not asked");
  auto read = step_answer_from(*json);
  if (!read) return garbage("a field of wrong type");
  auto& answer = batch.answers[batch.asked[*id - batch.first_id]];
  if (answer) return garbage("a second answer");
  answer = *std::move(read);
  --batch.missing;
  ++counts_.answers;
}

void StepProcess::take_output(Batch& batch) {
  std::array<char, 65536> buffer;
  const ssize_t count = ::read(running_->output.get(), buffer.data(), buffer.size());
  if (count == 0) return fail(batch, ending(running_->process));
  if (count < 0) {
    if (errno != EAGAIN && errno != EINTR) fail(batch, "its output cannot be read");
    return;
  }
  std::string& unread = running_->unread;
  unread.append(buffer.data(), size_t(count));
  size_t begin = 0;
  for (size_t end; (end = unread.find('\n', begin)) != unread.npos; begin = end + 1)
    take_line(std::string_view(unread).substr(begin, end - begin), batch);
  unread.erase(0, begin);
  if (unread.size() > kLineBytesMax) fail(batch, "a line of its output is longer than 1 MiB");
}

void StepProcess::fail(Batch& batch, std::string why) {
  log_warning("step {}: {}; it is started anew", spec_.name, why);
  batch.failure = std::move(why);
  running_.reset();
}

Status StepProcess::ask_once(Batch& batch, const StopToken& stop) {
  if (!running_) YARD_TRY(start());
  batch.first_id = next_id_;
  next_id_ += batch.asked.size();
  batch.missing = batch.asked.size();
  for (size_t i = 0; i < batch.asked.size(); ++i) {
    const StepRequest& request = batch.requests[batch.asked[i]];
    batch.input += Json{{"id", batch.first_id + i},
                        {"batch", batch.asked.size()},
                        {"key", request.key},
                        {"path", request.path},
                        {"metadata", request.metadata}}
                       .dump(-1, ' ', false, Json::error_handler_t::replace) +
                   "\n";
  }
  const Time deadline = std::chrono::steady_clock::now() + spec_.timeout;
  while (running_ && batch.missing > 0) {
    if (stop.stopped()) return Error{Code::kCancelled, "stopped"};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      fail(batch, "no answer within " + format_duration(spec_.timeout));
      break;
    }
    const bool has_input = batch.written < batch.input.size();
    std::array<pollfd, 3> fds = {pollfd{running_->output.get(), POLLIN, 0},
                                 pollfd{has_input ? running_->socket.get() : -1, POLLOUT, 0},
                                 pollfd{stop.fd(), POLLIN, 0}};
    ::poll(fds.data(), fds.size(), int(std::min<int64_t>(left.count(), 1000)) + 1);
    if (fds[1].revents != 0) {
      const ssize_t sent = ::send(running_->socket.get(), batch.input.data() + batch.written,
                                  batch.input.size() - batch.written, MSG_NOSIGNAL);
      if (sent > 0) batch.written += size_t(sent);
      // A program that no longer reads may still have answered.
      if (sent < 0 && errno != EAGAIN && errno != EINTR) batch.written = batch.input.size();
    }
    if (fds[0].revents != 0) take_output(batch);
  }
  return Ok{};
}

Result<std::vector<StepAnswer>> StepProcess::ask(const std::vector<StepRequest>& requests,
                                                 const StopToken& stop) {
  std::vector<std::optional<StepAnswer>> answers(requests.size());
  std::vector<std::vector<size_t>> rounds(1);
  for (size_t i = 0; i < requests.size(); ++i) rounds[0].push_back(i);
  for (size_t round = 0; round < rounds.size(); ++round) {
    if (rounds[round].empty()) continue;
    Batch batch{.requests = requests, .asked = rounds[round], .answers = std::move(answers)};
    YARD_TRY(ask_once(batch, stop));
    answers = std::move(batch.answers);
    if (batch.missing < batch.asked.size()) failures_in_a_row_ = 0;
    if (batch.missing == 0) continue;
    if (batch.missing == batch.asked.size() && ++failures_in_a_row_ >= kFailuresMax)
      return Error{Code::kUnavailable,
                   fmt::format("step {}: {} times in a row without an answer: {}", spec_.name,
                               kFailuresMax, batch.failure)};
    for (const size_t i : batch.asked) {
      if (answers[i]) continue;
      if (batch.asked.size() > 1)
        rounds.push_back({i});
      else
        answers[i] = StepAnswer{.error = batch.failure};
    }
  }
  std::vector<StepAnswer> all;
  for (auto& answer : answers) all.push_back(*std::move(answer));
  return all;
}

}  // namespace yard::prep
