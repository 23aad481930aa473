#include "jobdb/platform_db.h"

#include <fmt/format.h>

#include <algorithm>

#include "jobdb/migrations_internal.h"
#include "jobdb/platform_rows_internal.h"
#include "jobdb/platform_step_internal.h"

namespace yard::jobdb {

using internal::Connection;
using internal::Statement;
using internal::Transaction;

namespace {

template <typename Row>
Result<std::vector<Row>> read_rows(Statement& statement, Result<Row> (*read)(Statement&)) {
  std::vector<Row> rows;
  while (true) {
    YARD_ASSIGN(const bool there, statement.step());
    if (!there) return rows;
    YARD_ASSIGN(Row row, read(statement));
    rows.push_back(std::move(row));
  }
}

Result<jobs::StatusChange> read_change(Statement& row) {
  jobs::StatusChange change;
  change.status = row.text();
  change.start_t = row.real();
  if (const double end_t = row.real(); end_t > 0) change.end_t = end_t;
  change.message = row.text();
  return change;
}

Result<PlatformAttemptRow> read_attempt_row(Statement& row) {
  PlatformAttemptRow attempt;
  attempt.number = static_cast<int>(row.integer());
  attempt.started_t = row.real();
  attempt.ended_t = row.real();
  attempt.outcome = row.text();
  attempt.cause = row.text();
  attempt.detail = row.text();
  return attempt;
}

Result<int64_t> read_id(Statement& row) {
  return row.integer();
}

Error unknown_job(std::string_view name) {
  return {Code::kNotFound, fmt::format("no job '{}'", name)};
}

// A page token: the sort key and the id of the last row of the page.
struct PageEnd {
  Json key;
  int64_t id = 0;
};

Result<PageEnd> parse_token(const std::string& token) {
  const auto json = parse_json(token, "page token");
  const bool good = json && json->is_array() && json->size() == 2 && (*json)[0].is_primitive() &&
                    (*json)[1].is_number_integer();
  if (!good) return Error{Code::kInvalidArgument, "the page token is none of ours"};
  return PageEnd{(*json)[0], (*json)[1].get<int64_t>()};
}

std::string_view sort_column(PlatformQuery::Sort sort) {
  switch (sort) {
    case PlatformQuery::Sort::kCreated:
      return "created_t";
    case PlatformQuery::Sort::kName:
      return "name";
    case PlatformQuery::Sort::kStatus:
      return "status";
  }
  YARD_UNREACHABLE();
}

Json sort_key(const PlatformJobRow& row, PlatformQuery::Sort sort) {
  if (sort == PlatformQuery::Sort::kCreated) return row.created_t;
  if (sort == PlatformQuery::Sort::kName) return row.job.name;
  return std::string(jobs::primary_status(row.state));
}

// The statement and the values of its parameters grow together.
class PageStatement {
 public:
  explicit PageStatement(const PlatformQuery& query)
      : sql_(fmt::format("SELECT {} FROM platform_jobs WHERE kind = ?",
                         internal::kPlatformJobColumns)),
        values_{std::string(jobs::to_string(query.kind))} {
    if (!query.name_contains.empty()) add("instr(lower(name), lower(?)) > 0", query.name_contains);
    if (!query.status.empty()) add("status = ?", query.status);
    if (!query.warm_pool_status.empty()) add("warm_state = ?", query.warm_pool_status);
    add_time("created_t > ?", query.created_after_t);
    add_time("created_t < ?", query.created_before_t);
    add_time("modified_t > ?", query.modified_after_t);
    add_time("modified_t < ?", query.modified_before_t);
  }

  void start_after(const PageEnd& end, const PlatformQuery& query) {
    sql_ += fmt::format(" AND ({}, id) {} (?, ?)", sort_column(query.sort),
                        query.ascending ? ">" : "<");
    values_.push_back(end.key);
    values_.push_back(end.id);
  }

  Result<Statement> prepare(Connection& connection, const PlatformQuery& query) {
    const std::string_view order = query.ascending ? "ASC" : "DESC";
    sql_ += fmt::format(" ORDER BY {0} {1}, id {1} LIMIT ?", sort_column(query.sort), order);
    YARD_ASSIGN(Statement statement, connection.prepare(sql_));
    for (const Json& value : values_) {
      if (value.is_string())
        statement.bind(value.get_ref<const std::string&>());
      else if (value.is_number_float())
        statement.bind(value.get<double>());
      else if (value.is_number())
        statement.bind(value.get<int64_t>());
      else
        return Error{Code::kInvalidArgument, "the page token is none of ours"};
    }
    // One more shows whether there is another page.
    statement.bind(int64_t{query.limit} + 1);
    return statement;
  }

 private:
  void add(std::string_view condition, Json value) {
    sql_ += fmt::format(" AND {}", condition);
    values_.push_back(std::move(value));
  }
  void add_time(std::string_view condition, const std::optional<double>& t) {
    if (t) add(condition, *t);
  }

  std::string sql_;
  std::vector<Json> values_;
};

}  // namespace

struct PlatformDb::Impl {
  Connection connection;

  Status insert_job(const jobs::JobRequest& request, const std::string& dir, int64_t keep_alive_s,
                    double t);
  Status insert_tags(std::string_view arn, const std::map<std::string, std::string>& tags);
  Status read_tags(PlatformJobRow& row);
  Result<int64_t> count(std::string_view sql, std::string_view value);
  template <typename Row>
  Result<std::vector<Row>> rows_of_job(std::string_view sql, int64_t job_id,
                                       Result<Row> (*read)(Statement&));
};

PlatformDb::PlatformDb(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PlatformDb::PlatformDb(PlatformDb&&) noexcept = default;
PlatformDb& PlatformDb::operator=(PlatformDb&&) noexcept = default;
PlatformDb::~PlatformDb() = default;

Result<PlatformDb> PlatformDb::open(const std::string& path) {
  YARD_ASSIGN(Connection connection, internal::open_database(path));
  return PlatformDb(std::unique_ptr<Impl>(new Impl{std::move(connection)}));
}

Result<int64_t> PlatformDb::Impl::count(std::string_view sql, std::string_view value) {
  YARD_ASSIGN(Statement select, connection.prepare(sql));
  select.bind(value);
  YARD_ASSIGN(const bool there, select.step());
  return there ? select.integer() : int64_t{0};
}

template <typename Row>
Result<std::vector<Row>> PlatformDb::Impl::rows_of_job(std::string_view sql, int64_t job_id,
                                                       Result<Row> (*read)(Statement&)) {
  YARD_ASSIGN(Statement select, connection.prepare(sql));
  select.bind(job_id);
  return read_rows(select, read);
}

Result<int64_t> PlatformDb::create(const jobs::JobRequest& request, const std::string& dir,
                                   const std::vector<PlatformHostRow>& hosts, int64_t keep_alive_s,
                                   double t) {
  YARD_ASSIGN(Transaction transaction, Transaction::begin(impl_->connection));
  // Jobs of `yard run` have folders of the same kind of name.
  YARD_ASSIGN(const int64_t taken,
              impl_->count("SELECT (SELECT count(*) FROM platform_jobs WHERE dir = ?1) + (SELECT "
                           "count(*) FROM jobs WHERE dir = ?1)",
                           dir));
  if (taken > 0)
    return Error{Code::kExhausted, fmt::format("there is a job '{}' already", request.name)};
  YARD_TRY(impl_->insert_job(request, dir, keep_alive_s, t));
  const int64_t job_id = sqlite3_last_insert_rowid(impl_->connection.handle());
  YARD_TRY(impl_->insert_tags(request.arn, request.tags));
  YARD_TRY(internal::write_hosts(impl_->connection, job_id, hosts));
  YARD_TRY(internal::add_change(impl_->connection, job_id, jobs::kFirstSecondary,
                                jobs::kFirstMessage, t));
  YARD_TRY(internal::add_transition(impl_->connection, job_id, t, jobs::JobStage::kQueued,
                                    jobs::PlatformEvent::kNoHosts, {{}, jobs::Work::kPlace, "", ""},
                                    "created"));
  YARD_TRY(transaction.commit());
  return job_id;
}

Status PlatformDb::Impl::insert_job(const jobs::JobRequest& request, const std::string& dir,
                                    int64_t keep_alive_s, double t) {
  YARD_ASSIGN(Statement insert,
              connection.prepare(
                  "INSERT INTO platform_jobs (kind, name, arn, request, user, dir, stage, ending, "
                  "status, secondary, created_t, modified_t, queued_t, keep_alive_s) "
                  "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  const jobs::PlatformState state;
  insert.bind(to_string(request.kind)).bind(request.name).bind(request.arn);
  insert.bind(request.request.dump(-1, ' ', false, Json::error_handler_t::replace));
  insert.bind(request.user).bind(dir).bind(to_string(state.stage)).bind(to_string(state.ending));
  insert.bind(jobs::primary_status(state)).bind(jobs::kFirstSecondary);
  return insert.bind(t).bind(t).bind(t).bind(keep_alive_s).run();
}

Status PlatformDb::remove(int64_t job_id) {
  YARD_ASSIGN(Statement remove,
              impl_->connection.prepare("DELETE FROM platform_jobs WHERE id = ?"));
  return remove.bind(job_id).run();
}

Status PlatformDb::Impl::read_tags(PlatformJobRow& row) {
  YARD_ASSIGN(Statement select,
              connection.prepare("SELECT key, value FROM platform_tags WHERE arn = ?"));
  select.bind(row.job.arn);
  while (true) {
    YARD_ASSIGN(const bool there, select.step());
    if (!there) return Ok{};
    std::string key = select.text();
    row.job.tags[std::move(key)] = select.text();
  }
}

Result<PlatformJobRow> PlatformDb::find(jobs::JobKind kind, std::string_view name) {
  YARD_ASSIGN(Statement select, impl_->connection.prepare(fmt::format(
                                    "SELECT {} FROM platform_jobs WHERE kind = ? AND name = ?",
                                    internal::kPlatformJobColumns)));
  select.bind(jobs::to_string(kind)).bind(name);
  YARD_ASSIGN(const bool there, select.step());
  if (!there) return unknown_job(name);
  YARD_ASSIGN(PlatformJobRow row, internal::read_platform_job(select));
  YARD_TRY(impl_->read_tags(row));
  return row;
}

Result<PlatformJobRow> PlatformDb::job(int64_t job_id) {
  YARD_ASSIGN(PlatformJobRow row, internal::load_job(impl_->connection, job_id));
  YARD_TRY(impl_->read_tags(row));
  return row;
}

Result<PlatformPage> PlatformDb::list(const PlatformQuery& query) {
  if (query.limit < 1 || query.limit > kPageSizeMax)
    return Error{Code::kInvalidArgument, fmt::format("a page has 1 to {} jobs", kPageSizeMax)};
  PageStatement page_statement(query);
  if (!query.page_token.empty()) {
    YARD_ASSIGN(const PageEnd end, parse_token(query.page_token));
    page_statement.start_after(end, query);
  }
  YARD_ASSIGN(Statement select, page_statement.prepare(impl_->connection, query));
  PlatformPage page;
  YARD_ASSIGN(page.jobs, read_rows(select, internal::read_platform_job));
  if (static_cast<int>(page.jobs.size()) > query.limit) {
    page.jobs.pop_back();
    page.next_token = Json{sort_key(page.jobs.back(), query.sort), page.jobs.back().id}.dump();
  }
  for (auto& row : page.jobs) YARD_TRY(impl_->read_tags(row));
  return page;
}

Result<std::vector<int64_t>> PlatformDb::active_ids() {
  YARD_ASSIGN(Statement select,
              impl_->connection.prepare(
                  "SELECT id FROM platform_jobs WHERE stage NOT IN ('completed', 'failed', "
                  "'stopped') UNION SELECT job_id FROM platform_hosts WHERE life != 'free' "
                  "ORDER BY 1"));
  return read_rows(select, read_id);
}

Result<int64_t> PlatformDb::waiting_count() {
  return impl_->count("SELECT count(*) FROM platform_jobs WHERE stage = ?",
                      to_string(jobs::JobStage::kQueued));
}

Result<std::vector<jobs::StatusChange>> PlatformDb::changes(int64_t job_id) {
  return impl_->rows_of_job(
      "SELECT status, start_t, end_t, message FROM platform_status_changes WHERE job_id = ? "
      "ORDER BY number",
      job_id, read_change);
}

Result<std::vector<PlatformHostRow>> PlatformDb::hosts(int64_t job_id) {
  return impl_->rows_of_job(
      fmt::format("SELECT {} FROM platform_hosts WHERE job_id = ? ORDER BY number",
                  internal::kPlatformHostColumns),
      job_id, internal::read_platform_host);
}

Result<std::vector<PlatformAttemptRow>> PlatformDb::attempts(int64_t job_id) {
  return impl_->rows_of_job(
      "SELECT number, started_t, ended_t, outcome, cause, detail FROM platform_attempts "
      "WHERE job_id = ? ORDER BY number",
      job_id, read_attempt_row);
}

Result<std::vector<PlatformTransitionRow>> PlatformDb::transitions(int64_t job_id) {
  return impl_->rows_of_job(
      fmt::format("SELECT {} FROM platform_transitions WHERE job_id = ? ORDER BY id",
                  internal::kPlatformTransitionColumns),
      job_id, internal::read_platform_transition);
}

Result<jobs::PlatformTransition> PlatformDb::apply(const PlatformStep& step) {
  YARD_ASSIGN(Transaction transaction, Transaction::begin(impl_->connection));
  YARD_ASSIGN(const auto transition, internal::apply_step(impl_->connection, step));
  YARD_TRY(transaction.commit());
  return transition;
}

Status PlatformDb::set_host_life(int64_t job_id, std::string_view host, jobs::HostLife life) {
  YARD_ASSIGN(Statement update,
              impl_->connection.prepare(
                  "UPDATE platform_hosts SET life = ? WHERE job_id = ? AND name = ?"));
  return update.bind(to_string(life)).bind(job_id).bind(host).run();
}

Status PlatformDb::mark_work_done(int64_t job_id) {
  YARD_ASSIGN(Statement update,
              impl_->connection.prepare("UPDATE platform_transitions SET work_done = 1 "
                                        "WHERE job_id = ? AND work_done = 0"));
  return update.bind(job_id).run();
}

Result<std::vector<PlatformTransitionRow>> PlatformDb::pending_work() {
  YARD_ASSIGN(Statement select,
              impl_->connection.prepare(
                  fmt::format("SELECT {} FROM platform_transitions WHERE work_done = 0 ORDER BY id",
                              internal::kPlatformTransitionColumns)));
  return read_rows(select, internal::read_platform_transition);
}

Status PlatformDb::end_warm_pool(int64_t job_id, double t) {
  YARD_ASSIGN(Transaction transaction, Transaction::begin(impl_->connection));
  YARD_TRY(internal::move_warm_pool(impl_->connection, job_id, jobs::WarmEvent::kExpired,
                                    {.until_t = t}));
  YARD_TRY(internal::set_all_host_lives(impl_->connection, job_id, jobs::HostLife::kFree));
  return transaction.commit();
}

Status PlatformDb::set_keep_alive(int64_t job_id, int64_t keep_alive_s,
                                  std::optional<double> until_t, double t) {
  YARD_ASSIGN(Statement update,
              impl_->connection.prepare(
                  "UPDATE platform_jobs SET keep_alive_s = ?, modified_t = max(modified_t, ?), "
                  "warm_until_t = CASE WHEN ? > 0 THEN ? ELSE warm_until_t END WHERE id = ?"));
  const double until = until_t.value_or(0);
  update.bind(keep_alive_s).bind(t).bind(until).bind(until);
  return update.bind(job_id).run();
}

Status PlatformDb::set_request(int64_t job_id, const Json& request, double t) {
  YARD_ASSIGN(Statement update,
              impl_->connection.prepare("UPDATE platform_jobs SET request = ?, "
                                        "modified_t = max(modified_t, ?) WHERE id = ?"));
  update.bind(request.dump(-1, ' ', false, Json::error_handler_t::replace));
  return update.bind(t).bind(job_id).run();
}

Result<std::map<std::string, std::string>> PlatformDb::tags(std::string_view arn) {
  YARD_ASSIGN(const int64_t known,
              impl_->count("SELECT count(*) FROM platform_jobs WHERE arn = ?", arn));
  if (known == 0) return unknown_job(arn);
  PlatformJobRow row;
  row.job.arn = arn;
  YARD_TRY(impl_->read_tags(row));
  return std::move(row.job.tags);
}

Status PlatformDb::Impl::insert_tags(std::string_view arn,
                                     const std::map<std::string, std::string>& tags) {
  YARD_ASSIGN(Statement insert,
              connection.prepare("INSERT OR REPLACE INTO platform_tags (arn, key, value) "
                                 "VALUES (?, ?, ?)"));
  for (const auto& [key, value] : tags) {
    YARD_TRY(insert.bind(arn).bind(key).bind(value).run());
    insert.reset();
  }
  YARD_ASSIGN(const int64_t now, count("SELECT count(*) FROM platform_tags WHERE arn = ?", arn));
  if (now > kTagsMax)
    return Error{Code::kInvalidArgument, fmt::format("{}: more than {} tags", arn, kTagsMax)};
  return Ok{};
}

Status PlatformDb::add_tags(std::string_view arn, const std::map<std::string, std::string>& tags) {
  YARD_ASSIGN(Transaction transaction, Transaction::begin(impl_->connection));
  YARD_TRY(this->tags(arn));
  YARD_TRY(impl_->insert_tags(arn, tags));
  return transaction.commit();
}

Status PlatformDb::remove_tags(std::string_view arn, const std::vector<std::string>& keys) {
  YARD_ASSIGN(Transaction transaction, Transaction::begin(impl_->connection));
  YARD_TRY(tags(arn));
  for (const auto& key : keys) {
    YARD_ASSIGN(Statement remove,
                impl_->connection.prepare("DELETE FROM platform_tags WHERE arn = ? AND key = ?"));
    YARD_TRY(remove.bind(arn).bind(key).run());
  }
  return transaction.commit();
}

}  // namespace yard::jobdb
