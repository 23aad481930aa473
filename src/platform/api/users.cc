#include "api/users.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>

#include "base/file.h"
#include "base/ids.h"
#include "base/json.h"
#include "base/log.h"

namespace yard::api {
namespace {

constexpr size_t kFileBytesMax = 4 << 20;
constexpr size_t kNameBytesMax = 64;

// Tells one content of the file from another.
struct FileStamp {
  ino_t inode = 0;
  off_t size_bytes = 0;
  int64_t modified_ns = 0;
  bool operator==(const FileStamp&) const = default;
};

FileStamp stamp_of(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return {};
  return {info.st_ino, info.st_size,
          int64_t(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec};
}

std::string upper_case(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? char(c - 32) : c; });
  return text;
}

// 40 letters and digits out of the kernel's generator: over 200 bits.
Credentials make_credentials() {
  return {"YARD" + upper_case(random_name(16)), random_name(40), ""};
}

Result<User> read_user(const Json& json, const std::string& what) {
  YARD_TRY(refuse_unknown_keys(json, {"name", "role", "access_key_id", "secret_access_key"}, what));
  User user;
  YARD_ASSIGN(user.name, json_field<std::string>(json, "name", what));
  YARD_ASSIGN(const auto role, json_field<std::string>(json, "role", what));
  YARD_ASSIGN(user.credentials.access_key, json_field<std::string>(json, "access_key_id", what));
  YARD_ASSIGN(user.credentials.secret_key,
              json_field<std::string>(json, "secret_access_key", what));
  const auto parsed = parse_role(role);
  if (!parsed)
    return Error{Code::kInvalidArgument, what + ": no role '" + role + "': read, submit or admin"};
  user.role = *parsed;
  if (user.name.empty() || user.credentials.access_key.empty() ||
      user.credentials.secret_key.empty())
    return Error{Code::kInvalidArgument, what + ": a name or key is empty"};
  return user;
}

Json to_json(const std::vector<User>& users) {
  Json all = Json::array();
  for (const User& user : users)
    all.push_back({{"name", user.name},
                   {"role", std::string(to_string(user.role))},
                   {"access_key_id", user.credentials.access_key},
                   {"secret_access_key", user.credentials.secret_key}});
  return Json{{"users", all}};
}

// Nobody else ever sees a half of it, nor any of it.
Status write_users(const std::string& path, const std::vector<User>& users) {
  const std::string temporary = path + ".tmp-" + random_name(8);
  const UniqueFd file(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) return errno_error(temporary, errno);
  const std::string text = to_json(users).dump(2) + "\n";
  const bool is_written = ::write(file.get(), text.data(), text.size()) == ssize_t(text.size()) &&
                          ::fsync(file.get()) == 0 &&
                          ::rename(temporary.c_str(), path.c_str()) == 0;
  if (is_written) return Ok{};
  const int why = errno;
  ::unlink(temporary.c_str());
  return errno_error(path, why);
}

// Held while the file is changed, against other processes.
Result<UniqueFd> lock_file(const std::string& path) {
  UniqueFd file(::open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.valid() || ::flock(file.get(), LOCK_EX) != 0) return errno_error(path, errno);
  return file;
}

bool is_user_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

}  // namespace

std::optional<Role> parse_role(std::string_view name) {
  for (const Role role : {Role::kRead, Role::kSubmit, Role::kAdmin})
    if (to_string(role) == name) return role;
  return std::nullopt;
}

struct Users::State {
  explicit State(std::string path) : path(std::move(path)) {}

  // Under `mutex`.
  void refresh() {
    const FileStamp now = stamp_of(path);
    if (now == stamp) return;
    auto loaded = load(path);
    if (!loaded) log_error("users: {}", loaded.error().message);
    if (loaded) users = *std::move(loaded);
    stamp = now;
  }
  Status save() {
    YARD_TRY(write_users(path, users));
    stamp = stamp_of(path);
    return Ok{};
  }

  const std::string path;
  std::mutex mutex;
  std::vector<User> users;
  FileStamp stamp;
};

Users::Users(std::unique_ptr<State> state) : state_(std::move(state)) {}
Users::~Users() = default;

Result<std::vector<User>> Users::load(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return errno_error(path, errno);
  if ((info.st_mode & 077) != 0)
    return Error{Code::kInvalidArgument,
                 path + ": others than its owner may read or write it; run: chmod 600 " + path};
  YARD_ASSIGN(const std::string text, read_file(path, kFileBytesMax));
  YARD_ASSIGN(const Json document, parse_json(text, path));
  YARD_TRY(refuse_unknown_keys(document, {"users"}, path));
  YARD_ASSIGN(const auto entries, json_field<std::vector<Json>>(document, "users", path));
  std::vector<User> users;
  for (const Json& entry : entries) {
    YARD_ASSIGN(User user, read_user(entry, path));
    for (const User& other : users)
      if (other.name == user.name || other.credentials.access_key == user.credentials.access_key)
        return Error{Code::kInvalidArgument, path + ": '" + user.name + "' is there twice"};
    users.push_back(std::move(user));
  }
  return users;
}

Result<std::unique_ptr<Users>> Users::open(const std::string& path) {
  auto state = std::make_unique<State>(path);
  YARD_ASSIGN(const UniqueFd lock, lock_file(path));
  auto loaded = load(path);
  if (!loaded && loaded.error().code != Code::kNotFound) return std::move(loaded).error();
  if (loaded) state->users = *std::move(loaded);
  const size_t before = state->users.size();
  for (const auto& [name, role] :
       {std::pair(kFirstUser, Role::kAdmin), std::pair(kJobsUser, Role::kSubmit)})
    if (before == 0 || (name == kJobsUser &&
                        std::ranges::find(state->users, name, &User::name) == state->users.end()))
      state->users.push_back({std::string(name), role, make_credentials()});
  if (state->users.size() != before) YARD_TRY(state->save());
  state->stamp = stamp_of(path);
  return std::unique_ptr<Users>(new Users(std::move(state)));
}

std::optional<User> Users::by_key(std::string_view access_key) {
  const std::lock_guard lock(state_->mutex);
  state_->refresh();
  for (const User& user : state_->users)
    if (user.credentials.access_key == access_key) return user;
  return std::nullopt;
}

std::optional<User> Users::by_name(std::string_view name) {
  const std::lock_guard lock(state_->mutex);
  state_->refresh();
  for (const User& user : state_->users)
    if (user.name == name) return user;
  return std::nullopt;
}

std::vector<User> Users::list() {
  const std::lock_guard lock(state_->mutex);
  state_->refresh();
  return state_->users;
}

Result<User> Users::add(const std::string& name, Role role) {
  if (!is_user_name(name))
    return Error{Code::kInvalidArgument,
                 "user '" + name + "': letters, digits, '.', '_' and '-', at most 64"};
  YARD_ASSIGN(const UniqueFd file_lock, lock_file(state_->path));
  const std::lock_guard lock(state_->mutex);
  state_->refresh();
  if (std::ranges::find(state_->users, name, &User::name) != state_->users.end())
    return Error{Code::kInvalidArgument, "user '" + name + "' is there already"};
  state_->users.push_back({name, role, make_credentials()});
  if (auto saved = state_->save(); !saved) {
    state_->users.pop_back();
    return std::move(saved).error();
  }
  return state_->users.back();
}

Status Users::put(const User& user) {
  YARD_ASSIGN(const UniqueFd file_lock, lock_file(state_->path));
  const std::lock_guard lock(state_->mutex);
  state_->refresh();
  std::vector<User> before = state_->users;
  std::erase_if(state_->users, [&](const User& other) { return other.name == user.name; });
  for (const User& other : state_->users)
    if (other.credentials.access_key == user.credentials.access_key) {
      state_->users = std::move(before);
      return Error{Code::kInvalidArgument,
                   "the key of '" + user.name + "' is that of another user"};
    }
  state_->users.push_back(user);
  auto saved = state_->save();
  if (!saved) state_->users = std::move(before);
  return saved;
}

Status Users::remove(const std::string& name) {
  YARD_ASSIGN(const UniqueFd file_lock, lock_file(state_->path));
  const std::lock_guard lock(state_->mutex);
  state_->refresh();
  const auto found = std::ranges::find(state_->users, name, &User::name);
  if (found == state_->users.end()) return Error{Code::kNotFound, "no user '" + name + "'"};
  const auto is_admin = [](const User& user) { return user.role == Role::kAdmin; };
  if (is_admin(*found) && std::ranges::count_if(state_->users, is_admin) == 1)
    return Error{Code::kInvalidArgument, "user '" + name + "' is the last admin"};
  std::vector<User> before = state_->users;
  state_->users.erase(found);
  if (auto saved = state_->save(); !saved) {
    state_->users = std::move(before);
    return saved;
  }
  return Ok{};
}

}  // namespace yard::api
