// yard users: who may call `yard serve`, and in which role.
#include <fmt/format.h>

#include "api/users.h"
#include "base/file.h"
#include "commands.h"
#include "platform_home.h"

namespace yard::app {
namespace {

Result<std::unique_ptr<api::Users>> open_users(const Context& context) {
  const PlatformHome home = platform_home(context.yard_home);
  YARD_TRY(make_directories(home.dir));
  return api::Users::open(home.users());
}

Status list_users(bool as_json, const Context& context) {
  YARD_ASSIGN(const auto users, open_users(context));
  Json all = Json::array();
  for (const api::User& user : users->list()) {
    if (as_json)
      all.push_back({{"name", user.name},
                     {"role", std::string(to_string(user.role))},
                     {"access_key_id", user.credentials.access_key}});
    else
      fmt::print("{:<24} {:<8} {}\n", user.name, to_string(user.role), user.credentials.access_key);
  }
  if (as_json) fmt::print("{}\n", all.dump(2));
  return Ok{};
}

Status add_user(const std::string& name, const std::string& role, const Context& context) {
  const auto parsed = api::parse_role(role);
  if (!parsed)
    return Error{Code::kInvalidArgument, "no role '" + role + "': read, submit or admin"};
  YARD_ASSIGN(const auto users, open_users(context));
  YARD_ASSIGN(const api::User user, users->add(name, *parsed));
  fmt::print("{}: {}, access key {}; its shell: eval \"$(yard env --user {})\"\n", user.name,
             to_string(user.role), user.credentials.access_key, user.name);
  return Ok{};
}

Status remove_user(const std::string& name, const Context& context) {
  YARD_ASSIGN(const auto users, open_users(context));
  return users->remove(name);
}

}  // namespace

void add_users_commands(CLI::App& app, Context& context) {
  CLI::App* group = app.add_subcommand("users", "who may call 'yard serve': list, add, remove");
  group->require_subcommand(1);
  auto as_json = std::make_shared<bool>(false);
  CLI::App* list = group->add_subcommand("list", "names, roles and access keys");
  list->add_flag("--json", *as_json);
  list->callback([as_json, &context] {
    context.action = [as_json, &context] { return list_users(*as_json, context); };
  });
  auto name = std::make_shared<std::string>();
  auto role = std::make_shared<std::string>("submit");
  CLI::App* add = group->add_subcommand("add", "make a user with a key of its own");
  add->add_option("NAME", *name)->required();
  add->add_option("--role", *role, "read, submit or admin")->capture_default_str();
  add->callback([name, role, &context] {
    context.action = [name, role, &context] { return add_user(*name, *role, context); };
  });
  CLI::App* remove = group->add_subcommand("remove", "its key is refused from then on");
  remove->add_option("NAME", *name)->required();
  remove->callback([name, &context] {
    context.action = [name, &context] { return remove_user(*name, context); };
  });
}

}  // namespace yard::app
