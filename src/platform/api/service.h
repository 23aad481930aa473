// Service: one AWS API behind the one port. The wire (signatures, forms, sizes, shapes, roles,
// audit) is done when it is called; it says what is the case.
#pragma once

#include <string>
#include <string_view>

#include "api/aws_error.h"
#include "api/shape.h"
#include "base/json.h"
#include "base/stop_token.h"

namespace yard::api {

// What a user may do; each may do what those before it may.
enum class Role {
  kRead,    // look at jobs, logs, metrics and objects
  kSubmit,  // start and stop jobs, write objects and messages
  kAdmin,   // forget jobs for good, and whatever a later operation needs
};

// "read", "submit", "admin".
std::string_view to_string(Role role);

// Who called. Verified by signature.
struct Caller {
  std::string user;
  std::string access_key;
  Role role = Role::kRead;
};

// One request. Lives as long as its handling.
struct Call {
  std::string operation;  // one of Service::model()'s
  Json input;             // in the JSON form, whatever the wire's, checked against the model
  Caller caller;
  std::string request_id;
  std::string endpoint;  // as the client reached us: "http://127.0.0.1:8080"
  std::string region;    // that it signed for
  StopToken stop;        // asked when the server ends; for calls that wait
};

// Thread-safe: called on many threads at once.
class Service {
 public:
  virtual ~Service() = default;

  // Its operations and shapes: Model::built_in("sagemaker").
  virtual const Model& model() const = 0;
  // The least that a caller needs for the operation. Calls above kRead are in the audit log.
  virtual Role needed_role(std::string_view operation) const = 0;
  // The answer in the JSON form: timestamps are numbers, an empty object says nothing. For the
  // Query form it is turned into XML by the operation's output shape.
  virtual AwsResult<Json> call(const Call& call) = 0;
  // What of the input the audit log names: a job, a queue. Never a secret.
  virtual std::string resource_of(const Call&) const { return ""; }
};

// How a service that is a table of functions finds the one: kRead for Describe..., List..., Get...,
// Filter..., Search and Simulate..., kSubmit otherwise.
Role role_by_name(std::string_view operation);

}  // namespace yard::api
