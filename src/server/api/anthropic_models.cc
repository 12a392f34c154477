// Anthropic's list of models. It shares its path with OpenAI's; Anthropic's clients send an anthropic-version header.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "server/api/api.h"
#include "server/api/query.h"
#include "server/service.h"

namespace millrace {
namespace {

constexpr size_t kMaxModelsListed = 1000;
constexpr size_t kUsual = 20;

Json model_json(const Service& service, const std::string& name) {
  return {
      {"type", "model"},
      {"id", name},
      {"display_name", name},
      {"created_at", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(service.started())))}};
}

}  // namespace

bool asks_as_anthropic(const HttpRequest& request) { return !request.header("anthropic-version").empty(); }

Handled anthropic_page(std::vector<Json> items, const HttpRequest& request, size_t most) {
  size_t limit = std::min(kUsual, most);
  if (const std::string count_text = query_value(request.query, "limit"); !count_text.empty()) {
    const auto [end, failed] = std::from_chars(count_text.data(), count_text.data() + count_text.size(), limit);
    if (failed != std::errc() || end != count_text.data() + count_text.size() || limit < 1 || limit > most)
      return ApiError::bad("limit", fmt::format("must be from 1 to {}", most));
  }
  const std::string after = query_value(request.query, "after_id"), before = query_value(request.query, "before_id");
  if (!after.empty() && !before.empty()) return ApiError::bad("before_id", "cannot be combined with after_id");
  const auto at = [&](const std::string& id) {
    return std::ranges::find_if(items, [&](const Json& item) { return item["id"] == id; }) - items.begin();
  };
  const auto count = static_cast<ptrdiff_t>(items.size());
  ptrdiff_t first = 0, last = count;
  if (!after.empty()) {
    first = at(after) + 1;
    if (first > count) return ApiError::bad("after_id", fmt::format("there is no '{}'", after.substr(0, 100)));
  }
  if (!before.empty()) {
    last = at(before);
    if (last == count) return ApiError::bad("before_id", fmt::format("there is no '{}'", before.substr(0, 100)));
    first = std::max<ptrdiff_t>(0, last - static_cast<ptrdiff_t>(limit));
  }
  const ptrdiff_t end = std::min(last, first + static_cast<ptrdiff_t>(limit));
  const bool more = before.empty() ? end < count : first > 0;
  Json data = Json::array();
  for (ptrdiff_t i = first; i < end; ++i) data.push_back(std::move(items[static_cast<size_t>(i)]));
  const Json first_id = data.empty() ? Json() : data.front()["id"], last_id = data.empty() ? Json() : data.back()["id"];
  return json_reply({{"data", std::move(data)}, {"has_more", more}, {"first_id", first_id}, {"last_id", last_id}});
}

Handled list_models_as_anthropic(Call& call) {
  std::vector<Json> all;
  for (const ModelStatus& model : call.service.models().list()) {
    all.push_back(model_json(call.service, model.name));
    for (const std::string& alias : model.aliases) all.push_back(model_json(call.service, alias));
    if (!model.served) continue;
    for (const AdapterInfo& adapter : model.served->engine->adapters())
      all.push_back(model_json(call.service, adapter.name));
  }
  Handled page = anthropic_page(std::move(all), call.request, kMaxModelsListed);
  if (const auto* wrong = std::get_if<ApiError>(&page)) return kAnthropic.refuse(*wrong);
  return page;
}

Handled show_model_as_anthropic(Call& call) {
  if (call.service.models().resolve(call.rest)) return json_reply(model_json(call.service, call.rest));
  return kAnthropic.refuse(call.service.no_such_model(call.rest));
}

}  // namespace millrace
