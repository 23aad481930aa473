#include "jobdb/job_db.h"

#include <fmt/format.h>

#include "jobdb/migrations_internal.h"

namespace yard::jobdb {

using internal::Connection;
using internal::Statement;
using internal::Transaction;
using jobs::JobEvent;
using jobs::JobState;

namespace {

constexpr std::string_view kJobColumns =
    "name, dir, state, reason, host, owner_pid, owner_start_ticks, "
    "(SELECT count(*) FROM attempts WHERE job_id = jobs.id), created_t, updated_t";
constexpr std::string_view kTransitionColumns =
    "transitions.id, jobs.name, t, from_state, event, to_state, action, action_done, detail";

Error unknown_word(std::string_view column, const std::string& word) {
  return {Code::kCorrupt, fmt::format("job database: unknown {} '{}'", column, word)};
}

Result<JobState> read_state(Statement& row) {
  const std::string word = row.text();
  const auto state = jobs::job_state_from(word);
  if (!state) return unknown_word("state", word);
  return *state;
}

Result<JobRow> read_job(Statement& row) {
  JobRow job;
  job.name = row.text();
  job.dir = row.text();
  YARD_ASSIGN(job.state, read_state(row));
  job.reason = row.text();
  job.host = row.text();
  job.owner.pid = static_cast<int>(row.integer());
  job.owner.start_ticks = static_cast<uint64_t>(row.integer());
  job.attempt_count = row.integer();
  job.created_t = row.real();
  job.updated_t = row.real();
  return job;
}

Result<TransitionRow> read_transition(Statement& row) {
  TransitionRow out;
  out.id = row.integer();
  out.job = row.text();
  out.t = row.real();
  YARD_ASSIGN(out.from, read_state(row));
  const std::string event = row.text();
  if (const auto known = jobs::job_event_from(event)) {
    out.event = *known;
  } else {
    return unknown_word("event", event);
  }
  YARD_ASSIGN(out.to, read_state(row));
  const std::string action = row.text();
  if (const auto known = jobs::action_from(action)) {
    out.action = *known;
  } else {
    return unknown_word("action", action);
  }
  out.action_done = row.integer() != 0;
  out.detail = row.text();
  return out;
}

template <typename Row>
Result<std::vector<Row>> read_all(Statement& statement, Result<Row> (*read)(Statement&)) {
  std::vector<Row> rows;
  while (true) {
    YARD_ASSIGN(const bool there, statement.step());
    if (!there) return rows;
    YARD_ASSIGN(Row row, read(statement));
    rows.push_back(std::move(row));
  }
}

Result<AttemptRow> read_attempt(Statement& row) {
  AttemptRow attempt;
  attempt.number = row.integer();
  attempt.started_t = row.real();
  attempt.ended_t = row.real();
  attempt.outcome = row.text();
  attempt.detail = row.text();
  return attempt;
}

Error no_such_job(std::string_view name) {
  return {Code::kNotFound, fmt::format("no job '{}'", name)};
}

// An attempt begins when its ranks run, and ends with whatever leads out of that.
bool begins_attempt(JobEvent event) {
  return event == JobEvent::kRanksStarted;
}
bool ends_attempt(JobEvent event) {
  return event != JobEvent::kRanksStarted && event != JobEvent::kStopAsked &&
         event != JobEvent::kPlaced && event != JobEvent::kResumeAsked;
}

}  // namespace

struct JobDb::Impl {
  Connection connection;
  Clock& clock;

  double now_t() const { return to_unix_seconds(clock.wall_now()); }
  Result<Statement> prepare(std::string_view sql) { return connection.prepare(sql); }
  Status store(int64_t job_id, JobState from, const TransitionRequest& request,
               const jobs::Transition& transition);
  Status store_attempt(int64_t job_id, const TransitionRequest& request);
  Status mark_actions_done(const std::string& name);
};

JobDb::JobDb(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
JobDb::JobDb(JobDb&&) noexcept = default;
JobDb& JobDb::operator=(JobDb&&) noexcept = default;
JobDb::~JobDb() = default;

Result<JobDb> JobDb::open(const std::string& path, Clock& clock) {
  YARD_ASSIGN(Connection connection, internal::open_database(path));
  return JobDb(std::unique_ptr<Impl>(new Impl{std::move(connection), clock}));
}

Status JobDb::create_job(const std::string& name, const std::string& dir, const Owner& owner) {
  YARD_ASSIGN(Transaction transaction, Transaction::begin(impl_->connection));
  if (job(name))
    return Error{Code::kInvalidArgument, fmt::format("there is a job '{}' already", name)};
  YARD_ASSIGN(Statement other, impl_->prepare("SELECT 1 FROM platform_jobs WHERE dir = ?"));
  YARD_ASSIGN(const bool is_taken, other.bind(dir).step());
  if (is_taken)
    return Error{Code::kInvalidArgument,
                 fmt::format("there is a job '{}' of the platform already", name)};
  YARD_ASSIGN(Statement insert,
              impl_->prepare("INSERT INTO jobs (name, dir, state, owner_pid, owner_start_ticks, "
                             "created_t, updated_t) VALUES (?, ?, ?, ?, ?, ?, ?)"));
  const double now_t = impl_->now_t();
  insert.bind(name).bind(dir).bind(to_string(JobState::kQueued));
  insert.bind(int64_t{owner.pid}).bind(static_cast<int64_t>(owner.start_ticks));
  insert.bind(now_t).bind(now_t);
  YARD_TRY(insert.run());
  return transaction.commit();
}

Status JobDb::remove_job(const std::string& name) {
  YARD_ASSIGN(Statement remove, impl_->prepare("DELETE FROM jobs WHERE name = ?"));
  return remove.bind(name).run();
}

Result<JobRow> JobDb::job(std::string_view name) {
  YARD_ASSIGN(Statement select,
              impl_->prepare(fmt::format("SELECT {} FROM jobs WHERE name = ?", kJobColumns)));
  select.bind(name);
  YARD_ASSIGN(const bool there, select.step());
  if (!there) return no_such_job(name);
  return read_job(select);
}

Result<std::vector<JobRow>> JobDb::jobs() {
  YARD_ASSIGN(Statement select,
              impl_->prepare(fmt::format("SELECT {} FROM jobs ORDER BY id", kJobColumns)));
  return read_all(select, read_job);
}

Result<jobs::Transition> JobDb::apply(const TransitionRequest& request) {
  YARD_ASSIGN(Transaction transaction, Transaction::begin(impl_->connection));
  YARD_ASSIGN(Statement select, impl_->prepare("SELECT id, state FROM jobs WHERE name = ?"));
  select.bind(request.job);
  YARD_ASSIGN(const bool there, select.step());
  if (!there) return no_such_job(request.job);
  const int64_t job_id = select.integer();
  YARD_ASSIGN(const JobState from, read_state(select));
  auto next = jobs::advance(from, request.event, request.retries_left);
  if (!next) return std::move(next).error().while_("job '" + request.job + "'");
  YARD_TRY(impl_->mark_actions_done(request.job));
  YARD_TRY(impl_->store(job_id, from, request, *next));
  YARD_TRY(impl_->store_attempt(job_id, request));
  YARD_TRY(transaction.commit());
  return *next;
}

Status JobDb::Impl::store(int64_t job_id, JobState from, const TransitionRequest& request,
                          const jobs::Transition& transition) {
  const double now_t = this->now_t();
  YARD_ASSIGN(Statement update, prepare("UPDATE jobs SET state = ?, reason = ?, updated_t = ? "
                                        "WHERE id = ?"));
  update.bind(to_string(transition.next)).bind(request.detail).bind(now_t).bind(job_id);
  YARD_TRY(update.run());
  YARD_ASSIGN(Statement insert,
              prepare("INSERT INTO transitions (job_id, t, from_state, event, to_state, action, "
                      "action_done, detail) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"));
  insert.bind(job_id).bind(now_t).bind(to_string(from)).bind(to_string(request.event));
  insert.bind(to_string(transition.next)).bind(to_string(transition.action));
  insert.bind(int64_t{transition.action == jobs::Action::kNone}).bind(request.detail);
  return insert.run();
}

Status JobDb::Impl::store_attempt(int64_t job_id, const TransitionRequest& request) {
  if (begins_attempt(request.event)) {
    YARD_ASSIGN(Statement insert,
                prepare("INSERT INTO attempts (job_id, number, started_t) VALUES (?1, "
                        "(SELECT count(*) FROM attempts WHERE job_id = ?1), ?2)"));
    return insert.bind(job_id).bind(now_t()).run();
  }
  if (!ends_attempt(request.event)) return Ok{};
  YARD_ASSIGN(Statement update, prepare("UPDATE attempts SET ended_t = ?, outcome = ?, detail = ? "
                                        "WHERE job_id = ? AND ended_t = 0"));
  update.bind(now_t()).bind(to_string(request.event)).bind(request.detail).bind(job_id);
  return update.run();
}

Status JobDb::mark_action_done(const std::string& name) {
  return impl_->mark_actions_done(name);
}

Status JobDb::Impl::mark_actions_done(const std::string& name) {
  YARD_ASSIGN(Statement update,
              prepare("UPDATE transitions SET action_done = 1 WHERE action_done = 0 AND "
                      "job_id = (SELECT id FROM jobs WHERE name = ?)"));
  return update.bind(name).run();
}

Status JobDb::set_owner(const std::string& name, const Owner& owner) {
  YARD_ASSIGN(Statement update, impl_->prepare("UPDATE jobs SET owner_pid = ?, "
                                               "owner_start_ticks = ? WHERE name = ?"));
  update.bind(int64_t{owner.pid}).bind(static_cast<int64_t>(owner.start_ticks)).bind(name);
  return update.run();
}

Status JobDb::set_host(const std::string& name, const std::string& host) {
  YARD_ASSIGN(Statement update, impl_->prepare("UPDATE jobs SET host = ? WHERE name = ?"));
  return update.bind(host).bind(name).run();
}

Result<std::vector<TransitionRow>> JobDb::pending_actions() {
  YARD_ASSIGN(Statement select,
              impl_->prepare(fmt::format("SELECT {} FROM transitions JOIN jobs ON jobs.id = job_id "
                                         "WHERE action_done = 0 ORDER BY transitions.id",
                                         kTransitionColumns)));
  return read_all(select, read_transition);
}

Result<std::vector<TransitionRow>> JobDb::transitions(std::string_view name) {
  YARD_ASSIGN(Statement select,
              impl_->prepare(fmt::format("SELECT {} FROM transitions JOIN jobs ON jobs.id = job_id "
                                         "WHERE jobs.name = ? ORDER BY transitions.id",
                                         kTransitionColumns)));
  select.bind(name);
  return read_all(select, read_transition);
}

Result<std::vector<AttemptRow>> JobDb::attempts(std::string_view name) {
  YARD_ASSIGN(
      Statement select,
      impl_->prepare("SELECT number, started_t, ended_t, outcome, detail FROM attempts "
                     "WHERE job_id = (SELECT id FROM jobs WHERE name = ?) ORDER BY number"));
  select.bind(name);
  return read_all(select, read_attempt);
}

}  // namespace yard::jobdb
