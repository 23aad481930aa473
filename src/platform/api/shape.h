// Model: what the requests of one AWS service have to look like, read from shapes/NAME.json.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/text_pattern.h"
#include "base/json.h"
#include "base/result.h"

namespace yard::api {

enum class ShapeKind {
  kStructure,
  kList,
  kMap,
  kString,
  kInteger,
  kLong,
  kFloat,
  kDouble,
  kBoolean,
  kTimestamp,
  kBlob
};

// Immutable once its Model is loaded, which owns it and what it refers to.
struct Shape {
  struct Member {
    std::string name;
    const Shape* shape = nullptr;
    bool is_required = false;
  };

  ShapeKind kind = ShapeKind::kString;
  std::vector<Member> members;     // of a structure
  const Shape* element = nullptr;  // of a list
  const Shape* key = nullptr;      // of a map
  const Shape* value = nullptr;
  // Of the length of a string, the size of a list or map, or the value of a number.
  std::optional<double> min;
  std::optional<double> max;
  std::optional<TextPattern> pattern;
  std::vector<std::string> values;  // of an enum; empty: any
  // Query form and XML: a list whose elements stand under this name without an element around
  // them (as those of SQS); empty: they are "member"s inside of one.
  std::string flat_name;
  std::string key_name = "key";  // of the entries of a map
  std::string value_name = "value";

  const Member* find(std::string_view name) const;
};

struct OperationShapes {
  const Shape* input = nullptr;   // null: whatever is sent is ignored
  const Shape* output = nullptr;  // only of services that speak XML
};

// Thread-safe: immutable.
class Model {
 public:
  // kInvalidArgument: not of that form, or a reference to nothing.
  static Result<std::unique_ptr<Model>> parse(std::string_view text, std::string_view what);
  // shapes/NAME.json as it was built in. Contract: there is one, and it is in order.
  static const Model& built_in(std::string_view name);

  const std::string& service() const { return service_; }              // "sagemaker", as signed for
  const std::string& target_prefix() const { return target_prefix_; }  // "SageMaker"; empty: none
  const std::string& json_version() const { return json_version_; }    // "1.1"; empty: no JSON
  // "2011-06-15": speaks the Query form too; empty: it does not.
  const std::string& query_version() const { return query_version_; }

  // The code of the error that a wrong request gets: "ValidationException".
  const std::string& validation_code() const { return validation_code_; }

  const OperationShapes* find(std::string_view operation) const;
  std::vector<std::string_view> operations() const;

 private:
  friend class ModelReader;
  Model() = default;

  std::string service_;
  std::string target_prefix_;
  std::string json_version_;
  std::string query_version_;
  std::string validation_code_;
  std::map<std::string, OperationShapes, std::less<>> operations_;
  std::vector<std::unique_ptr<Shape>> shapes_;
};

}  // namespace yard::api
