// Endpoint: one path of the server, as data. Each API lists its own in api/; endpoints.cc joins the lists.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "server/api/schema.h"
#include "server/generation/answer.h"
#include "server/models/served_model.h"

namespace millrace {

class Service;

struct Call {
  Service& service;
  HttpRequest& request;
  std::string rest;       // what stood for the '*' of the path
  Json body;              // checked against the endpoint's fields
  GenerationRequest ask;  // filled in by them

  const ServedModel& served() const { return *ask.served; }
  const LanguageModel& model() const { return *ask.served->model; }
  Engine& engine() const { return *ask.served->engine; }
};

using Handled = std::variant<HttpReply, ApiError>;

struct Endpoint {
  std::string method;
  std::string path;  // may end in '*'
  const Dialect* dialect = nullptr;
  std::string summary;  // one sentence
  std::vector<Field> fields;
  // Checks what concerns several fields and fills in what depends on them; null: nothing does.
  std::optional<ApiError> (*prepare)(const Json& body, GenerationRequest& ask) = nullptr;
  // The same with what the server holds; null: nothing is looked up.
  std::optional<ApiError> (*look_up)(Call& call) = nullptr;
  // Either text is generated and written by `format`, or handle() answers at once, or begin() answers the
  // exchange, at once or later; an error of its is answered for it.
  const AnswerFormat* format = nullptr;
  Handled (*handle)(Call& call) = nullptr;
  std::optional<ApiError> (*begin)(Call& call, const Exchange& exchange) = nullptr;
  bool without_model = false;  // needs none in memory: call.served() is not there
  bool raw_body = false;       // it is no JSON; the endpoint reads request.body
  bool open = false;           // to everybody, without a key
  bool admin = false;          // only for keys of that role
};

std::span<const Endpoint> endpoints();

// The endpoint of a request, or the one whose path it is with another method (`*wrong_method` is then set), or null.
const Endpoint* find_endpoint(const std::string& method, const std::string& path, std::string* rest,
                              bool* wrong_method);

// The API that a path looks like, for refusing it in its shape.
const Dialect& dialect_of_path(const std::string& path);

inline HttpReply json_reply(const Json& json) { return {.body = to_text(json)}; }

}  // namespace millrace
