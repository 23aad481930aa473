// The XML half of query_form.h.
#include <fmt/format.h>

#include "api/query_form.h"
#include "api/timestamp.h"
#include "gateway/xml.h"

namespace yard::api {
namespace {

class AnswerWriter {
 public:
  std::string take() { return std::move(text_); }

  void open(std::string_view name) { text_ += fmt::format("<{}>", name); }
  void open_root(std::string_view name, const Model* model) {
    if (model == nullptr) return open(name);
    text_ += fmt::format("<{} xmlns=\"https://{}.amazonaws.com/doc/{}/\">", name, model->service(),
                         model->query_version());
  }
  void close(std::string_view name) { text_ += fmt::format("</{}>", name); }
  void element(std::string_view name, std::string_view value) {
    open(name);
    text_ += gateway::escape_xml(value);
    close(name);
  }

  void members(const Shape& shape, const Json& object) {
    for (const Shape::Member& member : shape.members)
      if (const auto found = object.find(member.name); found != object.end())
        value(member.name, *member.shape, *found);
  }

 private:
  void value(std::string_view name, const Shape& shape, const Json& json) {
    if (shape.kind == ShapeKind::kList) return list(name, shape, json);
    if (shape.kind == ShapeKind::kMap) return map(name, shape, json);
    if (shape.kind == ShapeKind::kStructure) {
      open(name);
      members(shape, json);
      close(name);
      return;
    }
    element(name, scalar(shape, json));
  }

  void list(std::string_view name, const Shape& shape, const Json& json) {
    const bool is_flat = !shape.flat_name.empty();
    if (!is_flat) open(name);
    for (const Json& each : json)
      value(is_flat ? std::string_view(shape.flat_name) : "member", *shape.element, each);
    if (!is_flat) close(name);
  }

  void map(std::string_view name, const Shape& shape, const Json& json) {
    const bool is_flat = !shape.flat_name.empty();
    const std::string_view entry = is_flat ? std::string_view(shape.flat_name) : "entry";
    if (!is_flat) open(name);
    for (const auto& [key, each] : json.items()) {
      open(entry);
      element(shape.key_name, key);
      value(shape.value_name, *shape.value, each);
      close(entry);
    }
    if (!is_flat) close(name);
  }

  static std::string scalar(const Shape& shape, const Json& json) {
    if (shape.kind == ShapeKind::kTimestamp && json.is_number())
      return format_timestamp(json.get<double>());
    if (json.is_string()) return json.get<std::string>();
    return json.dump();
  }

  std::string text_ = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
};

}  // namespace

std::string xml_of_answer(const Model& model, std::string_view operation, const Json& answer,
                          std::string_view request_id) {
  const OperationShapes* shapes = model.find(operation);
  YARD_CHECK(shapes != nullptr);
  AnswerWriter xml;
  const std::string root = fmt::format("{}Response", operation);
  const std::string result = fmt::format("{}Result", operation);
  xml.open_root(root, &model);
  if (shapes->output != nullptr) {
    xml.open(result);
    xml.members(*shapes->output, answer);
    xml.close(result);
  }
  xml.open("ResponseMetadata");
  xml.element("RequestId", request_id);
  xml.close("ResponseMetadata");
  xml.close(root);
  return xml.take();
}

std::string xml_of_error(const Model* model, const AwsError& error, std::string_view request_id) {
  AnswerWriter xml;
  xml.open_root("ErrorResponse", model);
  xml.open("Error");
  xml.element("Type", error.http_status < 500 ? "Sender" : "Receiver");
  xml.element("Code", query_name(error));
  xml.element("Message", error.message);
  xml.close("Error");
  xml.element("RequestId", request_id);
  xml.close("ErrorResponse");
  return xml.take();
}

}  // namespace yard::api
