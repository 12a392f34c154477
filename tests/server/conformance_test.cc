// Checks every endpoint of a live server against the schema: each field in turn with a wrong type, out of its bounds,
// with an unknown choice, too long or missing is refused in the format of its API, naming the field; unknown fields and
// nulls change nothing.
#include "server/conformance.h"

#include <cmath>

#include "server/api/api.h"
#include "server/live_server.h"

namespace millrace {
namespace {

std::string api_of(const Dialect* dialect) {
  if (dialect == &kAnthropic) return "anthropic";
  if (dialect == &kOllama) return "ollama";
  return dialect == &kLlamaServer ? "llama-server" : "openai";
}

std::string title_of(const Endpoint& endpoint) { return endpoint.method + " " + endpoint.path; }

// Checks that an error has the API's format and that status; with an empty `field` it need not name one.
void expect_refusal(const Response& answer, const std::string& api, int status, const std::string& field,
                    const std::string& request) {
  EXPECT_EQ(answer.status, status) << request << " gives " << answer.body;
  const Json json = answer.json();
  std::string message;
  if (api == "ollama") {
    ASSERT_TRUE(json.is_object() && json["error"].is_string()) << request << " gives " << answer.body;
    message = json["error"];
  } else {
    ASSERT_TRUE(json.is_object() && json["error"].is_object() && json["error"]["message"].is_string())
        << request << " gives " << answer.body;
    const Json& error = json["error"];
    message = error["message"];
    EXPECT_TRUE(error["type"].is_string());
    if (status == 400) {
      EXPECT_EQ(error["type"], "invalid_request_error") << answer.body;
    }
    if (api == "anthropic") {
      EXPECT_EQ(json["type"], "error");
    }
    if (api == "llama-server") {
      EXPECT_EQ(error["code"], status);
    }
    if (api == "openai") {
      EXPECT_TRUE(error.contains("param") && error.contains("code")) << answer.body;
    }
    if (api != "anthropic" && !field.empty()) {
      EXPECT_EQ(error["param"], field) << request << " gives " << answer.body;
    }
  }
  EXPECT_TRUE(message.starts_with(field)) << request << " gives " << message;
}

// A valid value of the field.
Json good_value(const Field& field) {
  if (field.name == "messages") return {{{"role", "user"}, {"content", "One day"}}};
  if (field.types & kJsonText) return field.choices.empty() ? "One day" : field.choices[0];
  if (field.types & (kJsonInteger | kJsonNumber)) return std::max(1.0, field.min);
  if (field.types & kJsonBoolean) return false;
  if (field.types & (kJsonTokens | kJsonTexts | kJsonList))
    return field.types & kJsonTokens ? Json{1} : Json{"One day"};
  return Json::object();
}

Json good_body(const Endpoint& endpoint) {
  Json body = Json::object();
  for (const Field& field : endpoint.fields) {
    if (field.required) body[field.name] = good_value(field);
    if (field.name == "input") body[field.name] = "One day";
    if (field.name == "max_tokens" || field.name == "max_output_tokens" || field.name == "n_predict")
      body[field.name] = 2;
    if (field.name == "options" && endpoint.dialect == &kOllama) body[field.name] = {{"num_predict", 2}};
  }
  return body;
}

struct Wrong {
  std::string what;
  Json value;
};

std::string number_text(double number) {
  return Json(number == std::floor(number) && std::abs(number) < 9e15 ? Json(static_cast<int64_t>(number))
                                                                      : Json(number))
      .dump();
}

// One value for each way in which the field can be wrong.
std::vector<Wrong> wrong_values(const Field& field) {
  std::vector<Wrong> out;
  const std::pair<unsigned, Json> kinds[] = {
      {kJsonObject, {{"a", 1}}}, {kJsonText, "x"}, {kJsonBoolean, true}, {kJsonNumber, 1.5}, {kJsonList, {true}}};
  for (const auto& [type, value] : kinds) {
    if (field.types & type) continue;
    out.push_back({"a wrong type", value});
    break;
  }
  if (field.types & (kJsonInteger | kJsonNumber)) {
    const auto beyond = [&](double bound, double sign) {
      return bound + sign * std::max(1.0, std::abs(bound) * 0.001);
    };
    const auto as_json = [&](double value) {
      return std::abs(value) < 9e15 && field.types & kJsonInteger ? Json(static_cast<int64_t>(value)) : Json(value);
    };
    if (field.min > -1e300) out.push_back({"below " + number_text(field.min), as_json(beyond(field.min, -1))});
    if (field.max < 1e300) out.push_back({"above " + number_text(field.max), as_json(beyond(field.max, 1))});
  }
  if (field.types & kJsonText && !field.choices.empty()) out.push_back({"none of its choices", "no such choice"});
  if (field.most <= 4096 && field.types & (kJsonTexts | kJsonList))
    out.push_back(
        {"more than " + std::to_string(field.most) + " items", std::vector<std::string>(field.most + 1, "a")});
  return out;
}

struct Asker {
  LiveServer live;
  Client client{live.port()};

  Response params(const Endpoint& endpoint, const std::string& body) {
    const bool open_ended = endpoint.path.ends_with('*');
    client.post(open_ended ? endpoint.path.substr(0, endpoint.path.size() - 1) + "0" : endpoint.path, body);
    return client.response();
  }

  void check_fields(const Endpoint& endpoint, const std::vector<Field>& fields, const std::string& parent) {
    const std::string api = api_of(endpoint.dialect);
    for (const Field& field : fields) {
      const std::string name = parent.empty() ? field.name : parent + "." + field.name;
      const auto with = [&](const Json& value) {
        Json body = good_body(endpoint);
        (parent.empty() ? body : body[parent])[field.name] = value;
        return body.dump();
      };
      if (field.harmless) {
        const std::string body = with({{"a", {1, 2}}});
        expect_refusal(params(endpoint, body), api, 400, name, endpoint.path + body.substr(0, 300));
        shows(api, title_of(endpoint), "unsupported", "`" + name + "`");
        continue;
      }
      std::string wrong_kinds;
      for (const Wrong& wrong : wrong_values(field)) {
        const std::string body = with(wrong.value);
        expect_refusal(params(endpoint, body), api, 400, name, endpoint.path + " " + body.substr(0, 300));
        wrong_kinds += (wrong_kinds.empty() ? "" : "; ") + wrong.what;
      }
      if (field.required && parent.empty()) {
        Json body = good_body(endpoint);
        body.erase(field.name);
        expect_refusal(params(endpoint, body.dump()), api, 400, name, endpoint.path + " " + body.dump());
        wrong_kinds += "; missing";
      }
      shows(api, title_of(endpoint), "field", "`" + name + "`\t" + wrong_kinds);
      if (parent.empty()) check_fields(endpoint, field.fields, name);
    }
  }
};

TEST(Conformance, EveryFieldIsChecked) {
  Asker asker;
  for (const Endpoint& endpoint : endpoints())
    if (endpoint.method == "POST") asker.check_fields(endpoint, endpoint.fields, "");
}

TEST(Conformance, UnknownFieldsAndNullsChangeNothing) {
  Asker asker;
  for (const Endpoint& endpoint : endpoints()) {
    if (endpoint.method != "POST" || endpoint.fields.empty() || endpoint.admin) continue;
    const std::string api = api_of(endpoint.dialect);
    Json body = good_body(endpoint);
    const Response plain = asker.params(endpoint, body.dump());
    for (const Field& field : endpoint.fields)
      if (!body.contains(field.name)) body[field.name] = nullptr;
    body["nobody knows this"] = {{"a", {1, nullptr, "b"}}};
    const Response odd = asker.params(endpoint, body.dump());
    EXPECT_EQ(odd.status, plain.status) << body << odd.body;
    EXPECT_EQ(odd.headers.at("content-type"), plain.headers.at("content-type"));
    if (plain.status == 200)
      shows(api, title_of(endpoint), "holds", "an unknown field is ignored, and one that is null is absent");
  }
}

TEST(Conformance, MalformedRequests) {
  Asker asker;
  for (const Endpoint& endpoint : endpoints()) {
    const std::string api = api_of(endpoint.dialect);
    if (endpoint.method != "POST" || endpoint.fields.empty()) continue;
    for (const char* body : {"", "{", "[1]", "\"a\"", "nul", "{\"a\": \"\xFF\"}", "{\"a\": 1e999}"})
      expect_refusal(asker.params(endpoint, body), api, 400, "", endpoint.path + " " + body);
    expect_refusal(asker.params(endpoint, std::string(100000, '[')), api, 400, "", endpoint.path + " [[[...");
    shows(api, title_of(endpoint), "refused", "a body that is no JSON object, no UTF-8, or nested too deeply: 400");
    std::string rest;
    bool wrong_method = false;
    find_endpoint("PATCH", endpoint.path, &rest, &wrong_method);
    ASSERT_TRUE(wrong_method);
    asker.client.get(endpoint.path, "", "PATCH");
    expect_refusal(asker.client.response(), api_of(&dialect_of_path(endpoint.path)), 405, "", "PATCH " + endpoint.path);
    shows(api, title_of(endpoint), "refused", "another method: 405");
    const auto model = std::ranges::find(endpoint.fields, "model", &Field::name);
    const bool manages = endpoint.admin && endpoint.dialect == &kOllama;  // its name may be a new one
    if (model == endpoint.fields.end() || endpoint.path.starts_with("/models/") || manages) continue;
    Json body = good_body(endpoint);
    body["model"] = "no such model";
    const Response answer = asker.params(endpoint, body.dump());
    expect_refusal(answer, api, 404, "model", endpoint.path + " " + body.dump());
    if (api == "openai") {
      EXPECT_EQ(answer.json()["error"]["code"], "model_not_found");
    }
    if (api == "anthropic" || api == "llama-server") {
      EXPECT_EQ(answer.json()["error"]["type"], "not_found_error");
    }
    shows(api, title_of(endpoint), "refused", "an unknown model: 404");
  }
}

TEST(Conformance, UnknownPaths) {
  LiveServer live;
  const std::pair<const char*, const char*> paths[] = {{"openai", "/v1/nothing"},
                                                       {"anthropic", "/v1/messages/nothing"},
                                                       {"ollama", "/api/nothing"},
                                                       {"llama-server", "/nothing"}};
  for (const auto& [api, path] : paths) {
    expect_refusal(get(live.port(), path), api, 404, "", path);
    shows(api, "Every endpoint", "refused", "an unknown path: 404");
  }
}

TEST(Conformance, UnsupportedEndpointsSaySo) {
  LiveServer live;
  for (const Endpoint& endpoint : endpoints()) {
    if (!endpoint.summary.starts_with("Not supported")) continue;
    const std::string api = api_of(endpoint.dialect);
    const bool open_ended = endpoint.path.ends_with('*');
    Client client(live.port());
    client.get(open_ended ? endpoint.path.substr(0, endpoint.path.size() - 1) + "0" : endpoint.path,
               "Content-Length: 2\r\n\r\n{}", endpoint.method);
    expect_refusal(client.response(), api, 501, "", title_of(endpoint));
    shows(api, title_of(endpoint), "unsupported", "all of it");
  }
}

TEST(Conformance, PromptsThatDoNotFit) {
  Asker asker;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "word ";
  for (const Endpoint& endpoint : endpoints()) {
    if (!endpoint.format) continue;
    const std::string api = api_of(endpoint.dialect);
    for (bool stream : {false, true}) {
      Json body = good_body(endpoint);
      body["stream"] = stream;
      for (const char* name : {"messages", "prompt", "input", "input_prefix"}) {
        if (std::ranges::none_of(endpoint.fields,
                                 [&](const Field& field) { return field.name == name && !field.harmless; }))
          continue;
        body[name] = std::string(name) == "messages" ? Json{{{"role", "user"}, {"content", text}}} : Json(text);
        break;
      }
      const Response answer = asker.params(endpoint, body.dump());
      if (answer.body.find("fill in") != std::string::npos) continue;  // the model cannot
      EXPECT_EQ(answer.status, 400) << endpoint.path << answer.body;
      const Json json = answer.json();
      const std::string message = api == "ollama" ? json["error"] : json["error"]["message"];
      EXPECT_NE(message.find(std::to_string(asker.live.engine().context())), std::string::npos) << message;
      if (api == "openai") {
        EXPECT_EQ(json["error"]["code"], "context_length_exceeded");
      }
      if (api == "llama-server") {
        EXPECT_EQ(json["error"]["type"], "exceed_context_size_error");
      }
      if (api == "openai" || api == "llama-server") {
        EXPECT_GT(json["error"]["n_prompt_tokens"].get<int64_t>(), asker.live.engine().context());
      }
      if (stream)
        shows(api, title_of(endpoint), "refused",
              "a prompt that does not fit, with the counts, before a stream begins: 400");
    }
  }
}

}  // namespace
}  // namespace millrace
