#include "server/api/search_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;

Field best_of_field() {
  Field field{"best_of", kJsonInteger, "n",
              "number of outputs to generate, of which the n most likely are returned, best first"};
  field.min = 1;
  field.max = 128;
  field.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    params.request.best_of = value.get<int64_t>();
    return std::nullopt;
  };
  return field;
}

}  // namespace

std::vector<Field> search_fields() {
  Field penalty{
      "length_penalty", kJsonNumber, "1",
      "for beam search: the score of an output is the sum of its log-probabilities / tokens ^ length_penalty"};
  penalty.min = -100;
  penalty.max = 100;
  penalty.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    params.request.length_penalty = value.get<double>();
    return std::nullopt;
  };
  Field early{
      "early_stopping", kJsonBoolean | kJsonText, "false",
      "a beam search ends with the n-th finished output; \"never\": only when none could be better at any length"};
  early.choices = {"never"};
  early.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    params.request.early_stopping = value.is_string()   ? EarlyStopping::never
                                    : value.get<bool>() ? EarlyStopping::yes
                                                        : EarlyStopping::no;
    return std::nullopt;
  };
  return {best_of_field(),
          {"use_beam_search", kJsonBoolean, "false",
           "return the n most likely outputs of a search with best_of beams (default: n); nothing is sampled"},
          penalty,
          early};
}

Wrong prepare_search(const Json& body, GenerationRequest& params) {
  Request& request = params.request;
  if (request.best_of > 0 && request.best_of < request.n)
    return ApiError::bad("best_of", fmt::format("must be at least n, which is {}, got {}", request.n, request.best_of));
  if (!body.value("use_beam_search", false)) return std::nullopt;
  request.beams = std::max(request.n, std::exchange(request.best_of, 0));
  if (request.beams == 1) request.sampling.temperature = 0;  // one beam is greedy search
  return std::nullopt;
}

}  // namespace millrace
