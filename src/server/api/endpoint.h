// Endpoint: describes one method and path of the server. Each API in api/ lists its own; endpoints.cc joins the lists.
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
  std::string rest;          // the part of the path matched by '*'
  Json body;                 // checked against the endpoint's fields
  GenerationRequest params;  // filled in by the fields
  size_t body_bytes = 0;     // bytes of the request's body, which is not kept

  const ServedModel& served() const { return *params.served; }
  const LanguageModel& model() const { return *params.served->model; }
  Engine& engine() const { return *params.served->engine; }
};

using Handled = std::variant<HttpReply, ApiError>;

struct Endpoint {
  std::string method;
  std::string path;  // may end in '*'
  const Dialect* dialect = nullptr;
  std::string summary;  // one sentence
  std::vector<Field> fields;
  // Checks that involve several fields, and values derived from them. May be null.
  std::optional<ApiError> (*prepare)(const Json& body, GenerationRequest& params) = nullptr;
  // Checks that need server state. May be null.
  std::optional<ApiError> (*look_up)(Call& call) = nullptr;
  // Exactly one is set: `format` writes generated text, handle() replies at once, begin() replies on the exchange, now
  // or later. If begin() returns an error, the caller sends it.
  const AnswerFormat* format = nullptr;
  Handled (*handle)(Call& call) = nullptr;
  std::optional<ApiError> (*begin)(Call& call, const Exchange& exchange) = nullptr;
  bool without_model = false;  // needs no loaded model; call.served() is not available
  bool raw_body = false;       // not JSON; the endpoint reads request.body
  bool open = false;           // needs no key
  bool admin = false;          // needs an admin key
};

std::span<const Endpoint> endpoints();

// The endpoint of a request, or null. If only the method differs, returns the endpoint with that path and sets
// `*wrong_method`.
const Endpoint* find_endpoint(const std::string& method, const std::string& path, std::string* rest,
                              bool* wrong_method);

// The API that a path seems to belong to, which formats the error for an unknown path.
const Dialect& dialect_of_path(const std::string& path);

inline HttpReply json_reply(const Json& json) { return {.body = to_text(json)}; }

}  // namespace millrace
