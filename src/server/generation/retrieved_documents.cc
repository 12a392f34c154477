#include "server/generation/retrieved_documents.h"

#include <fmt/format.h>

#include "retrieve/named_indexes.h"
#include "retrieve/passages_json.h"

namespace millrace {
namespace {

constexpr const char* kRetrieve = "millrace.retrieve";

// The text of the user's last message, or the prompt; "": there is none.
std::string question_of(const GenerationRequest& params) {
  if (params.messages.is_null()) return params.prompts.size() == 1 ? params.prompts.front().text : "";
  for (auto message = params.messages.rbegin(); message != params.messages.rend(); ++message) {
    if (!message->is_object() || message->value("role", Json()) != "user") continue;
    const auto content = message->find("content");
    return content != message->end() && content->is_string() ? content->get<std::string>() : "";
  }
  return "";
}

}  // namespace

std::optional<ApiError> retrieve_documents(const NamedIndexes* indexes, GenerationRequest& params) {
  const AskedRetrieval& asked = *params.retrieval;
  const Retriever* retriever = indexes ? indexes->find(asked.index) : nullptr;
  if (!retriever)
    return ApiError::bad("millrace.retrieve.index",
                         indexes ? fmt::format("there is no index '{}'; this server has: {}",
                                               asked.index.substr(0, 100), indexes->names())
                                 : "this server has no index; it was started without --index NAME=FOLDER");
  RetrievalRequest request;
  request.question = question_of(params);
  if (request.question.empty())
    return ApiError::bad(kRetrieve, "needs one question: a prompt that is a text, or a last message of the user");
  request.tenants = {"", asked.tenant};
  request.mode = find_search_mode(asked.mode).value_or(SearchMode::hybrid);
  request.k = asked.k;
  const auto found = retriever->find(request);
  if (!found.ok()) return ApiError::from(found.error());
  for (const SearchHit& one : *found) params.documents.push_back(passage_text(one));
  params.sources = passages_json(*found);
  return std::nullopt;
}

}  // namespace millrace
