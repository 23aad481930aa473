// Users: who may call, with which key and in which role: a file of this installation.
//
//   {"users": [{"name": "admin", "role": "admin", "access_key_id": "...", "secret_access_key":
//   "..."}]}
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/service.h"
#include "base/result.h"
#include "net/sigv4.h"

namespace yard::api {

struct User {
  std::string name;
  Role role = Role::kRead;
  Credentials credentials;
};

// The first user, made at the first start, and the one whose key jobs get.
inline constexpr std::string_view kFirstUser = "admin";
inline constexpr std::string_view kJobsUser = "jobs";
// Whose key is that of a store of somebody else, where objects are not served here.
inline constexpr std::string_view kStoreUser = "store";

// Thread-safe. Sees at once what another process changed in the file; a file that is broken then is
// logged, and the users stay as they were.
class Users {
 public:
  // Reads the file, or makes it, mode 0600, with kFirstUser (admin) and kJobsUser (submit).
  // kInvalidArgument: others may read it, or it is not of its form.
  static Result<std::unique_ptr<Users>> open(const std::string& path);
  // kNotFound: not made yet.
  static Result<std::vector<User>> load(const std::string& path);
  ~Users();

  std::optional<User> by_key(std::string_view access_key);
  std::optional<User> by_name(std::string_view name);
  std::vector<User> list();

  // With a new key. kInvalidArgument: the name is taken, or has other characters than letters,
  // digits, '.', '_', '-', or more than 64.
  Result<User> add(const std::string& name, Role role);
  // With a key that is known elsewhere, in the place of the user of that name if there is one.
  // kInvalidArgument: another user has the key.
  Status put(const User& user);
  // kNotFound; kInvalidArgument for the last one in the role kAdmin.
  Status remove(const std::string& name);

 private:
  struct State;
  explicit Users(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

std::optional<Role> parse_role(std::string_view name);

}  // namespace yard::api
