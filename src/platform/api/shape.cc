#include "api/shape.h"

#include <algorithm>
#include <mutex>

#include "api/embedded_internal.h"

namespace yard::api {
namespace {

std::optional<ShapeKind> kind_of(std::string_view name) {
  using enum ShapeKind;
  static const std::map<std::string_view, ShapeKind> kinds = {
      {"structure", kStructure}, {"list", kList},           {"map", kMap},     {"string", kString},
      {"integer", kInteger},     {"long", kLong},           {"float", kFloat}, {"double", kDouble},
      {"boolean", kBoolean},     {"timestamp", kTimestamp}, {"blob", kBlob}};
  const auto found = kinds.find(name);
  if (found == kinds.end()) return std::nullopt;
  return found->second;
}

}  // namespace

const Shape::Member* Shape::find(std::string_view name) const {
  const auto found = std::ranges::find(members, name, &Member::name);
  return found == members.end() ? nullptr : &*found;
}

// Reads one document; named shapes are made before they are filled, for they may refer to
// themselves.
class ModelReader {
 public:
  ModelReader(const Json& document, std::string_view what)
      : document_(document), what_(what), model_(new Model) {}

  Result<std::unique_ptr<Model>> read() {
    for (const auto& [key, into] : {std::pair("service", &model_->service_),
                                    std::pair("target_prefix", &model_->target_prefix_),
                                    std::pair("json_version", &model_->json_version_),
                                    std::pair("query_version", &model_->query_version_),
                                    std::pair("validation_code", &model_->validation_code_)}) {
      YARD_ASSIGN(*into, json_field<std::string>(document_, key, what_));
    }
    YARD_ASSIGN(const Json shapes, json_field<Json>(document_, "shapes", what_));
    for (const auto& [name, description] : shapes.items()) named_[name] = make();
    for (const auto& [name, description] : shapes.items())
      YARD_TRY(fill(*named_[name], description));
    YARD_ASSIGN(const Json operations, json_field<Json>(document_, "operations", what_));
    for (const auto& [name, description] : operations.items()) {
      OperationShapes& shapes_of = model_->operations_[name];
      YARD_ASSIGN(shapes_of.input, shape_in(description, "in"));
      YARD_ASSIGN(shapes_of.output, shape_in(description, "out"));
    }
    return std::move(model_);
  }

 private:
  Shape* make() {
    model_->shapes_.push_back(std::make_unique<Shape>());
    return model_->shapes_.back().get();
  }

  Error wrong(std::string_view why) const {
    return Error{Code::kInvalidArgument, what_ + ": " + std::string(why)};
  }

  Result<const Shape*> shape_of(const Json& description) {
    if (!description.is_string()) {
      Shape* made = make();
      YARD_TRY(fill(*made, description));
      return made;
    }
    const auto name = description.get<std::string>();
    if (name.starts_with('$')) {
      const auto found = named_.find(name.substr(1));
      if (found == named_.end()) return wrong("no shape '" + name + "'");
      return found->second;
    }
    Shape* made = make();
    YARD_TRY(fill(*made, Json{{"t", name}}));
    return made;
  }

  // Null where the description has none.
  Result<const Shape*> shape_in(const Json& description, const char* name) {
    if (!description.contains(name)) return static_cast<const Shape*>(nullptr);
    return shape_of(description[name]);
  }

  Status fill(Shape& shape, const Json& description) {
    YARD_ASSIGN(const auto kind_name, json_field<std::string>(description, "t", what_));
    const auto kind = kind_of(kind_name);
    if (!kind) return wrong("no kind of shape '" + kind_name + "'");
    shape.kind = *kind;
    YARD_ASSIGN(shape.element, shape_in(description, "of"));
    YARD_ASSIGN(shape.key, shape_in(description, "k"));
    YARD_ASSIGN(shape.value, shape_in(description, "v"));
    YARD_TRY(fill_limits(shape, description));
    YARD_TRY(fill_members(shape, description));
    if (shape.kind == ShapeKind::kList && shape.element == nullptr) return wrong("a list of what?");
    if (shape.kind == ShapeKind::kMap && (shape.key == nullptr || shape.value == nullptr))
      return wrong("a map of what?");
    return Ok{};
  }

  Status fill_limits(Shape& shape, const Json& description) {
    if (description.contains("min")) {
      YARD_ASSIGN(shape.min, json_field<double>(description, "min", what_));
    }
    if (description.contains("max")) {
      YARD_ASSIGN(shape.max, json_field<double>(description, "max", what_));
    }
    if (description.contains("pattern")) {
      YARD_ASSIGN(auto pattern, json_field<std::string>(description, "pattern", what_));
      shape.pattern.emplace(std::move(pattern));
    }
    YARD_ASSIGN(shape.values,
                json_field_or<std::vector<std::string>>(description, "enum", {}, what_));
    YARD_ASSIGN(shape.flat_name, json_field_or<std::string>(description, "flat", "", what_));
    YARD_ASSIGN(shape.key_name, json_field_or<std::string>(description, "key_name", "key", what_));
    YARD_ASSIGN(shape.value_name,
                json_field_or<std::string>(description, "value_name", "value", what_));
    return Ok{};
  }

  Status fill_members(Shape& shape, const Json& description) {
    const Json members = description.value("m", Json::object());
    YARD_ASSIGN(const auto required,
                json_field_or<std::vector<std::string>>(description, "req", {}, what_));
    for (const auto& [name, member] : members.items()) {
      YARD_ASSIGN(const Shape* member_shape, shape_of(member));
      const bool is_required = std::ranges::find(required, name) != required.end();
      shape.members.push_back({name, member_shape, is_required});
    }
    return Ok{};
  }

  const Json& document_;
  const std::string what_;
  std::unique_ptr<Model> model_;
  std::map<std::string, Shape*, std::less<>> named_;
};

Result<std::unique_ptr<Model>> Model::parse(std::string_view text, std::string_view what) {
  YARD_ASSIGN(const Json document, parse_json(text, what));
  return ModelReader(document, what).read();
}

const Model& Model::built_in(std::string_view name) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<Model>, std::less<>> loaded;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Model>& model = loaded[std::string(name)];
  if (model == nullptr) {
    const std::string file = std::string(name) + ".json";
    auto parsed = parse(shapes_text(file), file);
    if (!parsed) std::fprintf(stderr, "%s\n", parsed.error().message.c_str());
    YARD_CHECK(parsed.has_value());
    model = *std::move(parsed);
  }
  return *model;
}

const OperationShapes* Model::find(std::string_view operation) const {
  const auto found = operations_.find(operation);
  return found == operations_.end() ? nullptr : &found->second;
}

std::vector<std::string_view> Model::operations() const {
  std::vector<std::string_view> names;
  for (const auto& [name, shapes] : operations_) names.push_back(name);
  return names;
}

}  // namespace yard::api
